"""`why` and `plan` explain the same state alike, and what they print as a fix works.

Asked in simulated clusters under faults, after turns in which something waits: of every job that waits, the dominant
code of both answers is the same; asking changes nothing; and the fix, carried out on a copy of the state, starts it, at
once and when somebody has read and typed it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import pytest
from msgspec import structs

from phalanx.api.schema.jobs import Fix, WhyReply
from phalanx.coordinator.turn import Engine, Turn
from phalanx.coordinator.why import reasons_of, why_reply
from phalanx.core.cluster.decide.closed_nodes import why_closed
from phalanx.core.cluster.inputs import Cancel, Input, SetElastic, Submit, Tell, Undrain
from phalanx.core.cluster.jobs import JobState
from phalanx.core.explain import explain as explain_module
from phalanx.core.explain.rehearsal import rehearse
from phalanx.core.explain.trial import Trials
from phalanx.core.model.amounts import parse_bytes
from phalanx.core.model.job import Gather, Job, JobId, ulid
from phalanx.core.model.orders import Ended, Exit, Status, Why
from phalanx.preview.plan import preview
from phalanx.sim.report import describe_failure
from phalanx.sim.trial import run
from tests.support.quota_command import quota_set
from tests.support.state_image import snapshot_image

SEEDS = range(6)
EVERY = 7  # turns that leave a job waiting
JOBS_MOST = 6  # jobs asked about after one turn
CHECKED_MOST = 40  # turns looked at for each seed
AGAIN = ulid(1, 1)  # the job that is submitted in place of one that was cancelled
LATER_S = 10.0  # how long it takes to read a fix and to type it

EngineTurn = Callable[[Engine, list[Input], float], Turn]


def explained(turn: EngineTurn, seen: Counter[str]) -> EngineTurn:
    """A turn after which every waiting job is asked about."""

    def watched(engine: Engine, inputs: list[Input], now: float) -> Turn:
        done = turn(engine, inputs, now)
        if engine.state.counts[Status.PENDING] and not done.more:
            seen["turns"] += 1
            if seen["turns"] % EVERY == 0 and seen["checked"] < CHECKED_MOST:
                seen["checked"] += 1
                check(engine, now, turn, seen)
        return done

    return watched


def check(engine: Engine, now: float, turn: EngineTurn, seen: Counter[str]) -> None:
    before = snapshot_image(engine.state.snapshot(now, engine.memory))
    for node in engine.state.nodes.values():
        assert (why_closed(node) is None) == node.takes_work, f"{node.name}: {why_closed(node)}"
    waiting = [id for id, job in engine.state.jobs.items() if job.overall_status == Status.PENDING]
    asked = [engine.state.jobs[id] for id in waiting[:JOBS_MOST]]
    at_once = {
        each.id: each.reason for each in reasons_of(engine.state, asked, now, engine.policy, engine.memory)
    }
    for id in waiting[:JOBS_MOST]:
        reply = why_reply(engine.state, engine.state.jobs[id], None, now, engine.policy, engine.memory)
        planned = plan_code(engine, id, now)
        assert reply.dominant.code == planned, f"why {id}: {reply.dominant.code}, plan: {planned}"
        assert at_once[id].code == planned, f"reasons {id}: {at_once[id].code}, plan: {planned}"
        seen[reply.dominant.code] += 1
        if reply.fix is not None:
            carry_out(engine, id, now, turn, reply, seen)
    assert snapshot_image(engine.state.snapshot(now, engine.memory)) == before, "asking has changed the state"


def carry_out(
    engine: Engine, id: JobId, now: float, turn: EngineTurn, reply: WhyReply, seen: Counter[str]
) -> None:
    """The fix starts the job at once, and later if nothing else has happened by then."""
    assert reply.fix is not None
    next_due = engine.state.next_due  # then somebody's backoff ends, who may take the room
    for at in (now, now + LATER_S):
        if (at == now or next_due is None or next_due > at) and (
            tried(engine, id, at, turn, reply.fix, seen) is False
        ):
            raise AssertionError(f"{id} waits after its fix, {at - now} s later: {reply}")


def plan_code(engine: Engine, id: JobId, now: float) -> str:
    """The dominant code of `phalanx plan`; of a job that it would start, that it is placed at the next turn."""
    seen = engine.state.snapshot(now, engine.memory)
    reply = preview(engine.state, [], engine.policy, seen, known=[id])
    return next((no.code for no in reply.reasons if no.dominant), "Evaluating")


def tried(
    engine: Engine, id: JobId, now: float, turn: EngineTurn, fix: Fix, seen: Counter[str]
) -> bool | None:
    """Whether the job starts when its fix is carried out on a copy of the cluster; None if that cannot be done here."""
    copy = Engine(deepcopy(engine.state), engine.policy)
    copy.memory = deepcopy(engine.memory)
    job = copy.state.jobs[id]
    if fix.change and "would start now" in fix.text:
        seen["changed"] += 1
        again = structs.replace(changed(job.job, fix), id=AGAIN, batch=AGAIN, submitted_at=now)
        assert fix.command.startswith(f"phalanx cancel {id}") or job.job.user
        turn(copy, [Cancel(id), Submit(again)], now)
        return copy.state.jobs[AGAIN].overall_status != Status.PENDING
    if fix.command:
        inputs = list(carried_out(copy, fix.command, now))
        seen["enabled"] += any(type(each) is SetElastic for each in inputs)
        if not inputs:
            return None
        seen[fix.command.split()[1]] += 1
        turn(copy, inputs, now)
    else:
        return None
    return copy.state.jobs[id].overall_status != Status.PENDING


def carried_out(engine: Engine, command: str, now: float) -> Iterator[Input]:
    """What a command does, and for one that ends something the reports that it has ended."""
    for line in command.split(" && "):
        words = line.split()
        if words[1:3] == ["node", "resume"]:
            yield Undrain(words[3])
        elif words[1:3] == ["node", "elastic"]:
            yield SetElastic(words[3], enabled=words[4] == "on")
        elif words[1:3] == ["queue", "set"]:
            yield quota_set(line)
        elif words[1] == "cancel":
            id, _, index = words[2].partition(".")
            position = None if not index else _position(engine.state.jobs[id], words[2])
            keys = [
                (attempt.node, attempt.key)
                for at, attempt in engine.state.jobs[id].live.items()
                if position in (None, at)
            ]
            yield Cancel(id, position)
            for name, key in keys:
                node = engine.state.nodes[name]
                report = Ended(key, Exit(Why.CANCELLED, None, now, now))
                yield Tell(name, node.incarnation, engine.state.epoch, report, node.generation)


def _position(job: JobState, task: str) -> int:
    return next(at for at in range(job.job.tasks) if job.job.task_id(at) == task)


def changed(job: Job, fix: Fix) -> Job:
    """The job with the fields of a fix in place of its own."""
    fields, groups = dict(fix.change), job.groups
    request: dict[str, Any] = {name: fields[name] for name in ("gpus", "cores", "gpu_type") if name in fields}
    if "memory" in fields:
        request["memory_bytes"] = parse_bytes(str(fields["memory"]))
    if "gpu_memory" in fields:
        request["gpu_memory_bytes"] = 0
    if fields.get("targets") == []:
        request["target"] = None
    groups = tuple(structs.replace(each, request=structs.replace(each.request, **request)) for each in groups)
    if "min" in fields:
        groups = tuple(structs.replace(each, min=fields["min"]) for each in groups)
    if "gather" in fields and job.gang is not None:
        gather = tuple(Gather(**rule) for rule in fields["gather"])
        job = structs.replace(job, gang=structs.replace(job.gang, gather=gather))
    return structs.replace(job, groups=groups, time_limit_s=fields.get("time_limit", job.time_limit_s))


def watch(seeds: range = SEEDS) -> tuple[Counter[str], str]:
    """What was seen in these seeds, and what the first that failed says."""
    total = Counter[str]()
    for seed in seeds:
        seen = Counter[str]()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Engine, "turn", explained(Engine.turn, seen))
            result = run(seed)
        total.update(seen)
        if not result.is_good:
            return total, describe_failure(result, None)
    return total, ""


@pytest.mark.timeout(180)
def test_why_and_plan_find_the_same_and_what_they_print_works() -> None:
    seen, failure = watch()
    assert not failure, failure
    assert seen["changed"] >= 5, seen
    assert seen["cancel"] >= 5, seen
    assert seen["enabled"] >= 1, seen
    assert {"WaitingCapacity", "GangIncomplete"} <= seen.keys(), seen


def test_a_why_that_puts_another_reason_first_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def reversed_reasons(state: Any, asked: Any, *rest: Any) -> None:
        rehearse(state, asked, *rest)
        for share in asked:
            for found in share.findings:
                found.reasons.reverse()

    monkeypatch.setattr(explain_module, "rehearse", reversed_reasons)
    _, failure = watch()
    assert ", plan: " in failure


def test_a_fix_that_nobody_tried_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trials, "_starts", lambda *_, **more: True)
    _, failure = watch()
    assert "waits after its fix" in failure
