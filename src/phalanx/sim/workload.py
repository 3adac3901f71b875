"""The nodes of a run, and jobs of every kind that users submit, drawn from the seed.

The jobs are small, so that all of them can end within the quiet time after the faults. Gangs are drawn in
`workload_gang.py`.
"""

from __future__ import annotations

from random import Random

from msgspec import structs

from phalanx.core.model.array import Array
from phalanx.core.model.elastic import ElasticRules
from phalanx.core.model.job import Command, Group, Job, Restart, ulid
from phalanx.core.model.resources import Capacity, Device, NumaNode, Request, Target
from phalanx.sim.workload_gang import ENDLESS, GIB, GRACES_S, MIN_RUNS_S, PRIORITIES, QUEUES, a_gang

GANG_SHARE = 0.4
RESTARTS = (
    *(Restart() for _ in range(8)),
    Restart(counts_evictions=True),
    Restart(whole=True, limit=1),
    Restart(fails_job=True),
)


def a_capacity(dice: Random) -> Capacity:
    """A machine of two NUMA nodes, with or without devices, in some rack."""
    half = dice.choice((2, 3, 4))
    count = dice.choice((0, 2, 4))
    kind = dice.choice(("h100", "a40"))
    devices = tuple(Device(index, kind, 40 * GIB, 2 * index // count) for index in range(count))
    return Capacity(2 * half, 16 * GIB, (NumaNode(0, half), NumaNode(1, half)), devices, _labels(dice))


def some_elastic_rules(dice: Random) -> ElasticRules:
    """Automatic scaling in some runs, quick enough to happen often."""
    return ElasticRules(
        mode=dice.choice(("auto", "auto", "manual", "manual", "manual")),
        notifies=dice.random() < 0.5,
        idle_s=dice.choice((1.0, 5.0, 15.0)),
        queue_max=dice.choice((0, 0, 2)),
        queue_threshold=dice.choice((0, 1, 3)),
        active_min=dice.choice((0, 1, 2)),
        poll_s=dice.choice((0.5, 2.0, 5.0)),
        cooldown_s=dice.choice((2.0, 10.0)),
    )


def some_jobs(dice: Random, nodes: dict[str, Capacity], now: float) -> list[Job]:
    """The jobs of one submission: mostly one, sometimes one for each of several targets, often a gang."""
    if dice.random() < GANG_SHARE:
        return [a_gang(dice, a_job_id(dice, now), now)]
    template = a_job(dice, nodes, now)
    asked = template.groups[0].request
    if asked.target is None or dice.random() < 0.6:
        return [template]
    jobs = [template]
    for host in dice.sample(sorted(nodes), k=min(2, len(nodes))):
        request = Request(cores=asked.cores, target=Target(host))
        other = structs.replace(template, groups=(structs.replace(template.groups[0], request=request),))
        jobs.append(again(other, dice, now, template.id))
    return jobs


def a_job(dice: Random, nodes: dict[str, Capacity], now: float) -> Job:
    """One valid job. It may not fit any node."""
    id = a_job_id(dice, now)
    array, argv = _shape(dice)
    is_endless = argv == ENDLESS
    return Job(
        id=id,
        groups=(_group(Command(argv), _request(dice, nodes), array),),
        batch=id,
        submitted_at=now,
        queue=dice.choice(QUEUES),
        priority=-5 if is_endless else dice.choice(PRIORITIES),
        array=array,
        time_limit_s=dice.uniform(1.0, 8.0) if dice.random() < 0.15 else None,
        max_retries=dice.choice((0, 1, 3, 3)),
        grace_s=dice.choice(GRACES_S),
        user="ada",
        restart=dice.choice(RESTARTS),
        may_evict=dice.random() < 0.9,
        evictable=is_endless or dice.random() < 0.85,
        min_run_s=dice.choice(MIN_RUNS_S),
    )


def again(job: Job, dice: Random, now: float, batch: str | None) -> Job:
    """The same request sent again: every try has its own id, and what was a stage is a job of its own."""
    id = a_job_id(dice, now)
    # Its address is that of a token that was used: a user has no other way to ask for one.
    groups = tuple(
        structs.replace(group, request=structs.replace(group.request, address="")) for group in job.groups
    )
    return structs.replace(job, id=id, batch=batch or id, submitted_at=now, groups=groups, workflow=None)


def a_job_id(dice: Random, now: float) -> str:
    return ulid(int(now * 1000), dice.getrandbits(80))


def cluster_s(job: Job, nodes: dict[str, Capacity]) -> float:
    """How many seconds the job keeps its scarcest part of the cluster busy, if it fails as often as it may."""
    if is_endless(job):
        return 0.0
    lives = 1 if job.gang is None else 2 + job.restart.limit  # one more, because it may be evicted
    return lives * sum(_group_s(job, group, nodes) for group in job.groups)


def is_endless(job: Job) -> bool:
    return any(group.command.argv == ENDLESS for group in job.groups)


def _group_s(job: Job, group: Group, nodes: dict[str, Capacity]) -> float:
    request, argv = group.request, group.command.argv
    if len(argv) < 2:
        return 0.0
    hosts = [nodes[request.target.host]] if request.target else list(nodes.values())
    cores = sum(host.cores for host in hosts)
    gpus = sum(len(host.devices) for host in hosts)
    share = max(request.cores / cores, request.gpus / max(gpus, 1))
    tries = 1 if argv[0] in ("run", "stubborn") and argv[2] == "0" else 1 + job.max_retries
    return float(argv[1]) * group.tasks * tries * share


def _labels(dice: Random) -> dict[str, str]:
    """Mostly a rack and a block; a node without a label for a layer may still be used where the rules allow."""
    labels = {"block": dice.choice(("b1", "b1", "b2")), "rack": dice.choice(("r1", "r1", "r2"))}
    if dice.random() < 0.1:
        del labels[dice.choice(("block", "rack"))]
    return labels


def _group(command: Command, request: Request, array: Array | None) -> Group:
    return Group(command, request, tasks=len(array) if array else 1, at_once=array.at_once if array else 0)


def _shape(dice: Random) -> tuple[Array | None, tuple[str, ...]]:
    """One task, or an array of short ones, perhaps with a concurrency limit."""
    if dice.random() < 0.35:
        size = dice.randint(4, 14)
        limit = dice.choice((0, 0, 2, 3))
        return Array(((dice.randint(0, 5), size, 1),), limit), _command(dice, dice.uniform(0.05, 1.5))
    return None, _command(dice, dice.choice((0.01, 1.0, 5.0, 15.0, 30.0)) * dice.uniform(0.5, 1.5))


def _command(dice: Random, run_s: float) -> tuple[str, ...]:
    spelled, brief = f"{run_s:.3f}", f"{min(run_s, 3.0):.3f}"  # what is retried must be short
    kind = dice.random()
    if kind < 0.62:
        return ("run", spelled, "0")
    if kind < 0.72:
        return ("run", brief, str(dice.choice((1, 3, 255))))
    if kind < 0.84:
        return ("flaky", brief, str(dice.randint(1, 2)))
    if kind < 0.88:
        return ("signal", brief, "11")
    if kind < 0.93:
        return ("stubborn", spelled, "0")
    return ("missing",) if kind < 0.95 else ENDLESS


def _request(dice: Random, nodes: dict[str, Capacity]) -> Request:
    cores = dice.choice((1, 1, 1, 2, 2, 4))
    memory = dice.choice((0, 0, GIB, 4 * GIB))
    gpus = dice.choice((0, 0, 0, 1, 2))
    if dice.random() < 0.7:
        return Request(cores, memory, gpus)
    host = dice.choice(sorted(nodes))
    devices = tuple(device.index for device in nodes[host].devices)
    named = tuple(dice.sample(devices, k=dice.randint(1, 2))) if devices and dice.random() < 0.5 else ()
    numa = dice.choice((None, 0, 1))
    return Request(cores, memory, len(named) or min(gpus, len(devices)), target=Target(host, numa, named))
