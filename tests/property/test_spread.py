"""Spread tasks and gangs against a search that places one after another where the job has the fewest."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from msgspec.structs import replace

from phalanx.core.explain.shortage import place_gang
from phalanx.core.model.job import Gang
from phalanx.core.model.plan import GangPlacement
from phalanx.core.model.resources import Request
from phalanx.core.model.waiting import Part
from phalanx.core.placement.draft import Draft
from tests.property.placement_cases import a_case
from tests.property.placement_laws import member_laws
from tests.property.placement_oracle import Picture, fits
from tests.property.placement_stage import SmallGang, drawing, snapshot_of
from tests.support.builders import a_cluster, a_job

CHUNK = 100
Path = tuple[str, ...]


@pytest.mark.parametrize("first", range(0, 200, CHUNK))
def test_gangs_stand_on_as_many_nodes_as_they_can(first: int) -> None:
    for seed in range(first, first + CHUNK):
        case = a_case(seed)
        for unit in case.units:
            if isinstance(unit, SmallGang) and is_of_one_request(unit):
                snapshot = snapshot_of(case)
                packed = place_gang(Draft(snapshot_of(case)), spread(unit, False))
                answer = place_gang(Draft(snapshot), spread(unit, True))
                assert isinstance(answer, GangPlacement) == isinstance(packed, GangPlacement), drawing(case)
                if isinstance(answer, GangPlacement) and answer.members:
                    assert list(member_laws(case.picture, spread(unit, True), answer, frozenset())) == []
                    compare(case.picture, unit, answer)


def is_of_one_request(unit: SmallGang) -> bool:
    asked = {each.request for each in unit.asks}
    return len(asked) == 1 and next(iter(asked)).target is None


def spread(unit: SmallGang, is_spread: bool) -> SmallGang:
    """The same gang with the must rules alone, and spread or not."""
    assert unit.job.gang is not None
    rules = tuple(rule for rule in unit.job.gang.gather if rule.must and rule.multiple == 1)
    asks = tuple(replace(each, request=replace(each.request, spread=is_spread)) for each in unit.asks)
    return SmallGang(**{**vars(unit), "job": replace(unit.job, gang=Gang(gather=rules)), "asks": asks})


def compare(picture: Picture, unit: SmallGang, answer: GangPlacement) -> None:
    rows = {spot.name: row for row, spot in enumerate(picture.spots)}
    placed = Counter(rows[member.node] for member in answer.members)
    gang = spread(unit, True).job.gang
    assert gang is not None
    depth = max((picture.layers.index(rule.layer) for rule in gang.gather), default=0)
    slots = room(picture, unit.asks[0].request, len(answer.members))
    held = Counter(dict(unit.stands))
    domains: dict[Path, list[int]] = {}
    for row, spot in enumerate(picture.spots):
        domains.setdefault(spot.path[:depth], []).append(row)
    mine = domains[picture.spots[next(iter(placed))].path[:depth]]
    assert sorted(loads(mine, placed, held)) == sorted(
        loads(mine, one_by_one(mine, slots, held, placed.total()), held)
    )
    if placed.total() == sum(each.most for each in unit.asks) and not unit.stands:
        able = [each for each in domains.values() if sum(slots[row] for row in each) >= placed.total()]
        most = max(min(placed.total(), sum(slots[row] > 0 for row in each)) for each in able)
        assert len(placed) == most


def loads(rows: list[int], placed: Counter[int], held: Counter[int]) -> list[int]:
    return [placed[row] + held[row] for row in rows]


def room(picture: Picture, request: Request, most: int) -> list[int]:
    asks = (Part(request, 1, 1),)
    return [
        next((n for n in range(most, 0, -1) if fits(picture.free(row), asks, (n,))), 0) * spot.is_open
        for row, spot in enumerate(picture.spots)
    ]


def one_by_one(rows: list[int], slots: list[int], held: Counter[int], count: int) -> Counter[int]:
    placed: Counter[int] = Counter()
    for _ in range(count):
        able = [row for row in rows if placed[row] < slots[row]]
        placed[min(able, key=lambda row: placed[row] + held[row])] += 1
    return placed


def test_tasks_go_where_their_job_has_the_fewest() -> None:
    for seed in range(30):
        play(Random(seed))


def play(dice: Random) -> None:
    names = [f"n{number}" for number in range(dice.randint(1, 6))]
    cores = {name: dice.randint(1, 6) for name in names}
    cluster = a_cluster(**{name: {"cores": cores[name]} for name in names})
    for _ in range(dice.randint(0, 6)):
        cluster.submit(a_job(dice.choice([None, *names])))
    job = a_job(array=f"0-{dice.randint(1, 25)}", spread=True)
    table = cluster.state.snapshot(cluster.now).nodes
    before = {name: table.ledger(name).free[0] // 1000 for name in names}
    cluster.submit(job)
    mine = Counter[str]()
    for each in sorted(cluster.state.jobs[job.id].live.values(), key=lambda each: each.key[1]):
        able = [name for name in names if mine[name] < before[name]]
        assert mine[each.node] == min(mine[name] for name in able)
        assert before[each.node] - mine[each.node] == max(
            before[name] - mine[name] for name in able if mine[name] == mine[each.node]
        )
        mine[each.node] += 1
    assert mine.total() == min(job.tasks, sum(before.values()))
