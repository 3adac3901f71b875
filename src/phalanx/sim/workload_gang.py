"""Gangs that users submit, drawn from the seed: small groups that start whole, close together, and end as one."""

from __future__ import annotations

from random import Random

from phalanx.core.model.job import Command, Gang, Gather, Group, Job, Match, Restart, Rule, Success
from phalanx.core.model.resources import Request
from phalanx.sim.script import ENDLESS_S

GIB = 1 << 30
ENDLESS = ("run", str(ENDLESS_S), "0")  # idle work of low priority, until it is cancelled
GRACES_S = (0.0, 0.2, 2.0, 5.0)
MIN_RUNS_S = (0.0, 0.0, 0.0, 0.0, 12.0)
PRIORITIES = (0, 0, 0, 0, 5, 5, 10, -5)
QUEUES = ("default", "default", "default", "lab")
GATHERS = (
    (),
    (),
    (Gather("rack"),),
    (Gather("rack", must=True),),
    (Gather("block", must=True), Gather("rack")),
    (Gather("rack", multiple=2),),
    (Gather("node", must=True),),
)
MATCHES: tuple[Match, ...] = ("once-satisfied", "once-satisfied", "only-waiting", "waiting-and-running")
_ENDS_WELL = ("run", "flaky", "stubborn")


def a_gang(dice: Random, id: str, now: float) -> Job:
    """A job of two to six members in one to three groups."""
    endless = dice.random() < 0.15
    groups = _groups(dice, endless)
    restart = _restart(dice, groups)
    return Job(
        id=id,
        groups=groups,
        batch=id,
        submitted_at=now,
        queue=dice.choice(QUEUES),
        priority=-5 if endless else dice.choice(PRIORITIES),
        time_limit_s=dice.uniform(2.0, 10.0) if dice.random() < 0.1 else None,
        max_retries=dice.choice((0, 0, 1, 2)),
        grace_s=dice.choice(GRACES_S),
        user="ada",
        gang=_gang(dice),
        restart=restart,
        success=_success(dice, groups),
        may_evict=dice.random() < 0.9,
        evictable=endless or dice.random() < 0.85,
        min_run_s=dice.choice(MIN_RUNS_S),
    )


def _groups(dice: Random, endless: bool) -> tuple[Group, ...]:
    names = ("chief", "worker", "helper")[: dice.choice((1, 1, 1, 2, 2, 3))]
    left = dice.randint(max(2, len(names)), 6)
    groups: list[Group] = []
    for number, name in enumerate(names):
        others = len(names) - number - 1
        tasks = left if not others else dice.randint(1, left - others)
        left -= tasks
        groups.append(_group(dice, name, tasks, endless, groups[-1] if groups else None))
    return tuple(groups)


def _group(dice: Random, name: str, tasks: int, endless: bool, before: Group | None) -> Group:
    run_s = dice.choice((0.3, 1.0, 4.0, 9.0)) * dice.uniform(0.5, 1.5)
    after: tuple[tuple[str, str], ...] = ()
    if before is not None and dice.random() < 0.4:
        may_wait_for_end = before.command.argv[0] in _ENDS_WELL and not endless
        after = ((before.name, dice.choice(("started", "completed")) if may_wait_for_end else "started"),)
    return Group(
        Command(ENDLESS if endless else _command(dice, run_s)),
        Request(dice.choice((1, 1, 1, 2)), dice.choice((0, GIB)), dice.choice((0, 0, 0, 1))),
        name=name,
        tasks=tasks,
        min=dice.randint(1, tasks) if dice.random() < 0.4 else 0,
        optional=before is not None and dice.random() < 0.12,
        replicas=dice.choice((1, tasks)),
        indexes=tuple(range(tasks - 1, -1, -1)) if dice.random() < 0.2 else (),
        after=after,
    )


def _command(dice: Random, run_s: float) -> tuple[str, ...]:
    spelled, brief = f"{run_s:.3f}", f"{min(run_s, 2.0):.3f}"  # what is retried must be short
    kind = dice.random()
    if kind < 0.72:
        return ("run", spelled, "0")
    if kind < 0.80:
        return ("run", brief, str(dice.choice((1, 3))))
    if kind < 0.90:
        return ("flaky", brief, str(dice.randint(1, 2)))
    if kind < 0.93:
        return ("signal", brief, "11")
    return ("stubborn", spelled, "0") if kind < 0.98 else ("missing",)


def _gang(dice: Random) -> Gang:
    return Gang(
        gather=dice.choice(GATHERS),
        strict=dice.random() < 0.7,
        match=dice.choice(MATCHES),
        wait_s=dice.choice((4.0, 10.0, 25.0)),
        affinity=dice.choice(("", "", "", "near")),
    )


def _restart(dice: Random, groups: tuple[Group, ...]) -> Restart:
    kind, limit = dice.random(), dice.choice((0, 1, 1, 2))
    if kind < 0.55:
        return Restart(whole=True, limit=limit, counts_evictions=dice.random() < 0.3)
    if kind < 0.65:
        return Restart(fails_job=True, shared=dice.random() < 0.5)
    if kind < 0.75:
        return Restart(whole=True, limit=limit, rules=(Rule("restart-replica", reasons=("exited",)),))
    if kind < 0.82 and all(
        group.command.argv[0] != "run" or group.command.argv[2] == "0" for group in groups
    ):
        return Restart(whole=True, limit=limit, rules=(Rule("restart-uncounted", reasons=("exited",)),))
    return Restart(rules=(Rule("fail", reasons=("signalled",)),)) if kind < 0.88 else Restart()


def _success(dice: Random, groups: tuple[Group, ...]) -> Success:
    kind = dice.random()
    if kind < 0.08:
        return Success(any=True)
    return Success(groups=(groups[0].name,)) if kind < 0.15 else Success()
