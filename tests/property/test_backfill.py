"""Laws of the reservation: a unit that passes never delays the head, and on one machine it is exactly EASY."""

from __future__ import annotations

from bisect import insort

from hypothesis import given
from hypothesis import strategies as st

from bench.backfill import Replay
from bench.swf import Logged
from phalanx.core.model.plan import KeptNodes, Placement, Policy
from phalanx.core.model.tenants import TenantKey
from phalanx.core.model.waiting import Rank
from tests.support.planned_cluster import PlannedCluster, PlannedGang, WaitingTasks, members_of

CALM = Policy(evicts=False, assumed_run_s=0.0)

nodes = st.lists(st.tuples(st.integers(1, 6), st.integers(0, 3)), min_size=1, max_size=5)
ends = st.one_of(st.none(), st.integers(900, 1400))
tenants = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3), st.integers(0, 2), ends), max_size=8)
limits = st.one_of(st.none(), st.integers(1, 400))
units = st.lists(
    st.tuples(st.booleans(), st.integers(1, 5), st.integers(1, 4), st.integers(0, 2), limits),
    min_size=1,
    max_size=8,
)


def a_cluster(has: list, held: list, waiting: list) -> PlannedCluster:
    cluster = PlannedCluster()
    for number, (cores, gpus) in enumerate(has):
        cluster.add_node(f"n{number}", cores, gpus)
    for number, (at, cores, gpus, until) in enumerate(held):
        ledger = cluster.nodes.ledgers[at % len(has)]
        devices = tuple(sorted(ledger.devices_free)[:gpus])
        if ledger.cores_free >= cores:
            cluster.runs(f"old-{number}", ledger.name, cores, gpus=devices, until=until)
    for number, (is_gang, tasks, cores, gpus, limit) in enumerate(waiting):
        if is_gang:
            cluster.waits_whole(f"job-{number}", tasks, cores, gpus=gpus, limit=limit)
        else:
            cluster.waits(f"job-{number}", cores, gpus=gpus, tasks=tasks, limit=limit)
    return cluster


def earliest(cluster: PlannedCluster, unit: WaitingTasks | PlannedGang) -> float | None:
    """When the unit could start if all tenants leave when expected, found by looking at every instant."""
    request = unit.job.groups[0].request
    wanted = unit.wanted()[0].need if isinstance(unit, PlannedGang) else 1
    held = [each for each in cluster.tenants.tenants if each is not None]
    instants = sorted({cluster.now, *(max(cluster.now, each.ends_at) for each in held)})
    for instant in instants:
        room = 0
        for row, ledger in enumerate(cluster.nodes.ledgers):
            here = [each for each in held if each.node_row == row]
            gone = [each for each in here if max(cluster.now, each.ends_at) <= instant]
            cores = ledger.cores_free + sum(each.grant.cores for each in gone)
            gpus = len(ledger.devices_free) + sum(len(each.grant.devices) for each in gone)
            room += min(int(cores // request.cores), gpus // request.gpus if request.gpus else int(cores))
        if room >= wanted:
            return float(instant)
    return None


@given(nodes, tenants, units)
def test_whoever_passes_the_head_does_not_delay_it(has: list, held: list, waiting: list) -> None:
    cluster = a_cluster(has, held, waiting)
    proposal = cluster.plan(CALM)
    by_job: dict[str, list[Placement]] = {}
    for placement in members_of(proposal):
        by_job.setdefault(placement.job, []).append(placement)
    in_order = sorted(cluster.units.values(), key=lambda unit: unit.rank)
    promised: float | None = None
    head: WaitingTasks | PlannedGang | None = None
    for unit in in_order:
        for placement in by_job.get(unit.job.id, []):
            cluster._start(placement)  # more than a node has would be refused by its ledger
        if head is None and unit.left:
            promised = earliest(cluster, unit)
            head = unit if promised is not None else None
        elif head is not None:
            now_expected = earliest(cluster, head)
            assert now_expected is not None and promised is not None and now_expected <= promised


@given(nodes, tenants, units)
def test_a_plan_is_made_on_columns_that_are_as_before(has: list, held: list, waiting: list) -> None:
    cluster = a_cluster(has, held, waiting)
    before = [(ledger.cores_free, set(ledger.devices_free), ledger.promises) for ledger in cluster.nodes]
    cluster.plan(CALM)
    assert [(ledger.cores_free, ledger.devices_free, ledger.promises) for ledger in cluster.nodes] == before


@given(nodes, tenants, units)
def test_a_second_plan_finds_nothing_that_the_first_has_missed(has: list, held: list, waiting: list) -> None:
    cluster = a_cluster(has, held, waiting)
    cluster.go(CALM)
    assert cluster.go(CALM) == {}
    assert cluster.go(CALM) == {}


racks = st.lists(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4)), min_size=1, max_size=3), min_size=1, max_size=3
)
requests = st.lists(
    st.tuples(st.booleans(), st.booleans(), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2)),
    min_size=2,
    max_size=14,
)


@given(racks, requests, st.lists(st.integers(0, 30), max_size=40))
def test_without_limits_the_head_starts_when_those_have_left_who_were_on_its_nodes(
    has: list, requests: list, leaving: list[int]
) -> None:
    """No job has a time limit. Whatever comes and in whatever order they leave, the head does not starve."""
    cluster = PlannedCluster()
    for rack, nodes in enumerate(has):
        for number, (cores, gpus) in enumerate(nodes):
            cluster.add_node(f"r{rack}n{number}", cores, gpus, rack=f"r{rack}")
    coming = list(enumerate(requests))
    kept: dict[Rank, tuple[KeptNodes, set[TenantKey]]] = {}
    for step in range(len(leaving) + 1):
        for number, (is_gang, must, tasks, cores, gpus) in coming[:3]:
            if is_gang:
                cluster.waits_whole(f"job-{number}", tasks, cores, gpus=gpus, must="rack" if must else "")
            else:
                cluster.waits(f"job-{number}", cores, gpus=gpus, tasks=tasks)
        del coming[:3]
        cluster.go(CALM)
        check_kept(cluster, kept)
        if step < len(leaving) and (held := sorted(cluster.tenants.of_job)):
            key = min(cluster.tenants.of_job[held[leaving[step] % len(held)]])
            cluster._leave(key)
            cluster.gain += 1


def check_kept(cluster: PlannedCluster, known: dict[Rank, tuple[KeptNodes, set[TenantKey]]]) -> None:
    """The head keeps its nodes until it starts, and starts as soon as all that were there at first have left."""
    for rank in [rank for rank in known if rank not in cluster.kept]:
        del known[rank]
    for rank, kept in cluster.kept.items():
        there = [each for each in cluster.tenants.tenants if each is not None]
        there = [each for each in there if cluster.nodes.names[each.node_row] in kept.nodes]
        before = known.setdefault(rank, (kept, {each.key for each in there}))
        if before[0].position != kept.position:  # that task has started, and the next one waits
            before = known[rank] = (kept, {each.key for each in there})
        assert before[0] == kept
        assert before[1] & {each.key for each in there}, "they have all left, and it waits"


jobs = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 30), st.integers(0, 30), st.integers(1, 8)),
    min_size=1,
    max_size=25,
)


@given(jobs, st.booleans(), st.booleans())
def test_on_one_machine_it_is_easy_to_the_letter(rows: list, gangs: bool, backfills: bool) -> None:
    log = [
        Logged(number, float(at), float(run), float(run + over), procs)
        for number, (at, run, over, procs) in enumerate(sorted(rows, key=lambda row: row[0]))
    ]
    replay = Replay(8, gangs=gangs, backfills=backfills)
    replay.run(log, exact=False)
    assert replay.waits == textbook(log, 8, backfills)


def textbook(log: list[Logged], procs: int, backfills: bool) -> dict[int, float]:
    """EASY as it was published: counting processors, with nothing but lists."""
    queue: list[Logged] = []
    running: list[tuple[float, float, int]] = []  # end, estimated end, processors
    arrivals, waits, free = list(log), {}, procs

    def start(job: Logged, now: float) -> None:
        nonlocal free
        free -= job.procs
        waits[job.number] = now - job.submitted_at
        insort(running, (now + job.run_s, now + job.estimate_s, job.procs))
        queue.remove(job)

    while arrivals or running:
        now = min([job.submitted_at for job in arrivals[:1]] + [end for end, _, _ in running[:1]])
        while running and running[0][0] <= now:
            free += running.pop(0)[2]
        while arrivals and arrivals[0].submitted_at <= now:
            queue.append(arrivals.pop(0))
        while queue and queue[0].procs <= free:
            start(queue[0], now)
        if not queue or not backfills:
            continue
        head, shadow = queue[0], now
        for shadow in sorted(estimated for _, estimated, _ in running):
            if free + sum(held for _, until, held in running if until <= shadow) >= head.procs:
                break
        extra = free + sum(held for _, until, held in running if until <= shadow) - head.procs
        for job in queue[1:]:
            if job.procs > free:
                continue
            if now + job.estimate_s <= shadow:
                start(job, now)
            elif job.procs <= extra:
                extra -= job.procs
                start(job, now)
    return waits


def test_a_second_plan_finds_nothing_where_short_tasks_stand_behind_a_head() -> None:
    cluster = a_cluster(
        [(4, 1)], [(0, 1, 0, None), (0, 1, 1, None)], [(False, 1, 1, 1, None), (False, 2, 1, 0, 1)]
    )
    cluster.go(CALM)
    assert cluster.go(CALM) == {}
