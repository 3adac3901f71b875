"""What `decide` returns: the events to write, effects for the shell, and the answer to a command or report.

Effects are orders as values. They are carried out only once the events behind them are durable; those that start an
attempt are made from the state, so that they can be told again word for word.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct, structs

from phalanx.core.cluster.events import Event
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.stage_inputs import FetchInputs
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import Attempt
from phalanx.core.model.job import Job, JobId, NodeName
from phalanx.core.model.orders import (
    NONE_MERGED,
    AttemptKey,
    Brief,
    Disposition,
    Go,
    Order,
    Roll,
    Start,
    Status,
    gang_port,
    vps_port,
)
from phalanx.core.model.parameters import PROGRAM
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.workflow import SPEC_VARIABLE


class Send(Struct, frozen=True, gc=False):
    """Tell a node's runner something. A node that is away hears it when it is back."""

    node: NodeName
    order: Order


class Settle(Struct, frozen=True):
    """A task has ended for good (`position`), or the whole job has (None) and so every task of it.

    So that ends can be counted, each task is told of once: alone with its status, or among the `rest`.
    """

    job: JobId
    position: int | None
    status: Status | None = None  # of the one task
    rest: tuple[int, int, int] = (0, 0, 0)  # tasks that ended with their job: Completed, Failed, Cancelled


class WaitAgain(Struct, frozen=True):
    """So many tasks of a job had done their part, and wait again because the job starts anew."""

    job: JobId
    count: int


class Rebrief(Struct, frozen=True):
    """The settings of a job have changed that its brief tells: runners that have it are sent it anew."""

    job: JobId


Effect = Send | Settle | WaitAgain | FetchInputs | Rebrief


class Accepted(Struct, frozen=True):
    """Yes. `count` tasks were concerned, `stopping` of them still have an attempt to be stopped."""

    count: int = 1
    stopping: int = 0


class Refused(Struct, frozen=True):
    """No, and why. `kind` tells HTTP and the shell what sort of no it is."""

    reason: Reason
    # never | target | busy | no_room | bad | conflict | forbidden | not_found | too_many | stale
    kind: str = "conflict"


class Disposed(Struct, frozen=True, gc=False):
    """What became of one report; `epoch` and `generation` are those in force (0: no lease of that node is)."""

    key: AttemptKey
    disposition: Disposition
    epoch: int
    generation: int = 0


class Replayed(Struct, frozen=True):
    """This was asked before, under the same request id; these jobs came of it."""

    jobs: tuple[JobId, ...]


class Unchanged(Struct, frozen=True):
    """The same objects of Kubernetes have been applied before, and this job, which is not over, is of them."""

    job: JobId


Answer = Accepted | Refused | Disposed | Replayed | Unchanged


class Decision(Struct):
    """Facts to write, orders that need no fact, and the answer."""

    events: list[Event] = []
    effects: list[Effect] = []
    answer: Answer | None = None


def refuse(no: Reason, kind: str = "conflict") -> Decision:
    """Nothing follows but this answer."""
    return Decision([], [], Refused(no, kind))


def refuse_because(code: str, text: str, kind: str = "conflict", tier: Tier = Tier.NEVER) -> Decision:
    return refuse(Reason(code, tier, text), kind)


def start_order(state: ClusterState, attempt: Attempt) -> list[Effect]:
    """One order; the shell sends the group's brief and the gang's roll before it where the runner lacks them."""
    job_id, position, number = attempt.key
    held, job = state.jobs[job_id], state.jobs[job_id].job
    has_ssh = job.vps is not None and job.vps.ssh != "disabled"
    index = None if job.array is None else job.array.index(position)
    start = Start(
        attempt.key,
        attempt.lane,
        attempt.grant,
        index,
        number - 1,
        attempt.group,
        attempt.formation,
        _merged_specs(state, attempt) if attempt.merged else NONE_MERGED if answers_for_several(job) else "",
        vps_port(job_id, held.charged.get(position, 0)) if has_ssh else 0,
        "" if job.params is None else msgspec.json.encode(job.params_at(position)).decode(),
    )
    if attempt.formation and attempt.released:  # told again to a runner that had lost it: it need not wait
        return [Send(attempt.node, start), Send(attempt.node, Go(attempt.key))]
    return [Send(attempt.node, start)]


def answers_for_several(job: Job) -> bool:
    """Whether its program may answer in the form for several tasks, also when it runs alone."""
    return job.dispatch is not None and bool(job.dispatch.merge_key)


def _merged_specs(state: ClusterState, attempt: Attempt) -> str:
    """What the program of an attempt has to know of the tasks that run as a part of it."""
    jobs = (state.jobs[id].job for id in attempt.merged if id in state.jobs)
    specs = ((job.id, job.groups[0].command.env.get(SPEC_VARIABLE, "{}")) for job in jobs)
    told = [{"task_id": id, "spec": msgspec.Raw(spec.encode())} for id, spec in specs]
    return msgspec.json.encode(told).decode()


def go_orders(job: JobState) -> list[Effect]:
    """Tell every released member that has not started to go, in the order its groups begin."""
    return [
        Send(attempt.node, Go(attempt.key))
        for attempt in job.live.values()
        if attempt.formation and attempt.released and attempt.started_at is None and attempt.ending is None
        and job.groups[attempt.group].may_begin
    ]  # fmt: skip


def brief(job: Job, number: int) -> Brief:
    """What all attempts of a group share."""
    group = job.groups[number]
    command = group.command
    if job.params is not None:  # a runner that knows no parameters must not run it as it stands
        command = structs.replace(command, argv=(PROGRAM, *command.argv))
    return Brief(
        job.id,
        number,
        command,
        job.name,
        job.queue,
        job.batch,
        job.tasks,
        None if job.array is None else str(job.array),
        job.grace_s,
        job.time_limit_s,
        group.name,
        sum(each.tasks for each in job.groups[:number]),
        group.tasks,
        group.replicas,
        sum(each.replicas for each in job.groups),
        user=job.user,
        names=job.is_named,
        subdomain=job.subdomain,
        vps=job.vps,
    )


def roll(state: ClusterState, job: JobState, formation: int) -> Roll:
    """Who stands where: every live member, in the order of their index in the network."""
    ranked = sorted((_index(job, attempt), attempt.key[1], attempt.node) for attempt in job.live.values())
    places: dict[str, int] = {}
    for _, _, node in ranked:
        places.setdefault(node, len(places))
    nodes = tuple((name, state.nodes[name].address) for name in places)
    members = tuple((position, places[node]) for _, position, node in ranked)
    leader = job.live[ranked[0][1]] if ranked else None
    return Roll(
        job.job.id,
        formation,
        nodes,
        members,
        0 if leader is None else gang_port(leader.node, leader.lane),
        0 if leader is None else leader.formation,
        max((len(attempt.grant.devices) for attempt in job.live.values()), default=-1),
        _addresses(job, [position for _, position, _ in ranked]),
        tuple((each.group.name, each.first, each.group.tasks, each.group.replicas) for each in job.groups),
    )


def _addresses(job: JobState, positions: list[int]) -> tuple[str, ...]:
    """Each member's own address; nothing if none has one."""
    found = tuple(job.live[position].grant.address for position in positions)
    return found if any(found) else ()


def _index(job: JobState, attempt: Attempt) -> int:
    group = job.groups[attempt.group]
    position = attempt.key[1]
    return group.group.indexes[position - group.first] if group.group.indexes else position
