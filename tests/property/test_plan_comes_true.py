"""A plan and the submission behind it, in random clusters: what was planned starts, on those nodes, and nothing else.

The jobs wait at every gate there is at submit: holds, begins, approvals, other jobs, limits at once, quotas.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from msgspec import structs

from phalanx.api.schema.apply import PlanReply
from phalanx.core.cluster.decide.dependencies import never_after
from phalanx.core.cluster.decision import Accepted
from phalanx.core.cluster.inputs import SetQuota, Submit
from phalanx.core.explain.change import Asker
from phalanx.core.model.job import After, Job, When
from phalanx.core.model.queues import Approval, Quota, UserLimits
from phalanx.preview.plan import preview
from phalanx.preview.submission import Submitter
from tests.support.builders import Cluster, a_cluster, a_gang, a_group, a_job

SEEDS = 250
WHENS: list[When] = ["ok", "any", "started", "failed"]


def a_used_cluster(random: Random) -> Cluster:
    """Nodes on which jobs run and before which others wait."""
    sizes = ({"cores": random.choice([2, 4, 6]), "gpus": random.choice([0, 2])} for _ in range(3))
    cluster = a_cluster(**{f"n{number}": size for number, size in enumerate(sizes)})
    limits = UserLimits(running=2)
    cluster.give(SetQuota("lab", Quota(cores=random.choice([2, 9]), each_user=limits)))
    cluster.give(SetQuota("dept", Quota(tasks=3)))
    cluster.give(SetQuota("hall", Quota(approval=Approval(by=("carol",)))))
    for _ in range(random.randrange(12)):
        cluster.now += 1.0
        live = [each for job in cluster.state.jobs.values() for each in job.live.values() if each.released]
        if not live or random.random() < 0.7:
            cluster.give(Submit(some_job(random, cluster), role="user"))
            continue
        attempt = random.choice(live)
        if random.random() < 0.5:
            cluster.started(attempt.node, attempt.key)
        else:
            cluster.ended(attempt.node, attempt.key, code=random.choice([0, 0, 1]))
    return cluster


def some_job(random: Random, cluster: Cluster) -> Job:
    """One task, an array, one after another task by task, a gang, or groups of which one comes first."""
    known = list(cluster.state.jobs.values())
    fields: dict[str, Any] = {
        "queue": random.choice(["default", "default", "lab", "dept", "hall"]),
        "user": random.choice(["ada", "bo"]),
        "priority": random.choice([0, 0, 0, 1, 5]),
        "begin_at": random.choice([0.0, 0.0, 0.0, 0.0, 50.0, 1000.0]),
        "time_limit_s": random.choice([None, 30.0, 300.0]),
    }
    asked: dict[str, Any] = {"cores": random.choice([1, 1, 2, 3, 4]), "gpus": random.choice([0, 0, 0, 1, 2])}
    if known and random.random() < 0.25:
        fields["after"] = (After(random.choice(known).job.id, random.choice(WHENS[:3])),)
    arrays = [each.job for each in known if each.job.array is not None]
    kinds = ["task", "array", "gang", "groups"] + ["each"] * bool(arrays)
    match random.choice(kinds):
        case "gang":
            group = a_group(random.choice([2, 3]), min=random.choice([0, 1]), **asked)
            return a_gang(group, **fields)
        case "groups":
            first, second = a_group(1, name="a"), a_group(2, name="b", after=(("a", "started"),))
            return structs.replace(a_job(**fields), groups=(first, second))
        case "each":
            other = random.choice(arrays)
            after = (After(other.id, random.choice(WHENS), each=True),)
            return a_job(array=str(other.array), max_retries=0, **asked, **{**fields, "after": after})
        case "array":
            indexes = random.choice(["1-4", "1-4", "1-6%2", "1-3%1"])
            return a_job(array=indexes, max_retries=0, **asked, **fields)
    return a_job(max_retries=0, exclusive=random.random() < 0.2, **asked, **fields)


def compared(random: Random, cluster: Cluster, seen: Counter[str]) -> None:
    job, role, is_held = some_job(random, cluster), random.choice(["user", "operator"]), random.random() < 0.1
    if never_after(cluster.state, job) is not None:  # which both refuse
        return
    by = Submitter(Asker(job.user), role, frozenset([job.id] if is_held else []))
    snapshot = cluster.state.snapshot(cluster.now, cluster.engine.memory)
    reply = preview(cluster.state, [job], cluster.engine.policy, snapshot, by=by)
    answer = cluster.give(Submit(job, role=role, hold=is_held))[0]
    seen.update(no.code for no in reply.reasons)
    if not isinstance(answer, Accepted):
        assert reply.exit == 4
        return
    planned = {(each.task, each.node) for each in reply.placements if not each.nominated}
    live = cluster.state.jobs[job.id].live
    assert planned == {(job.task_id(position), each.node) for position, each in live.items()}
    assert is_true(reply), reply.reasons
    seen["starts"] += bool(planned)


def is_true(reply: PlanReply) -> bool:
    """Whether its exit code is that of what it says."""
    if reply.exit == 0:
        return bool(reply.placements)
    return any(no.waits for no in reply.reasons)


def test_what_a_plan_says_is_what_a_submission_does():
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        random = Random(seed)
        cluster = a_used_cluster(random)
        for _ in range(3):
            compared(random, cluster, seen)
    waits = ("Held", "WaitingApproval", "BeginTime", "WaitingDependency", "DependencyNever", "ArrayLimit")
    for code in ("starts", *waits, "QuotaExhausted", "UserLimitReached", "WaitingCapacity", "GangIncomplete"):
        assert seen[code], f"the seeds do not ask about {code}"
