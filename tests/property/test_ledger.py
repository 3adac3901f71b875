"""Ledgers and the columns over them: nothing is granted that is not free, and nothing is lost."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from phalanx.core.model.amounts import FIXED, MILLICORES, fixed
from phalanx.core.model.ledger import Ledger
from phalanx.core.model.queues import Queues
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.resources import Capacity, Grant, NumaNode, Request
from phalanx.core.model.table import NodeTable
from tests.property.strategies import HOSTS, capacities, requests, used_tables
from tests.support.builders import GIB

Steps = list[Request | int]  # a request to be granted, or the number of a grant to be given back
parts = st.integers(0, 3000).map(lambda millis: millis / 1000)
small = st.builds(
    Request, cores=st.integers(0, 2) | parts, memory_bytes=st.integers(0, GIB), gpus=st.integers(0, 2)
)
steps = st.lists(requests(("n1",)) | small | small | st.integers(0, 20), max_size=30)


@given(capacities(), steps)
def test_a_ledger_is_exact_whatever_is_taken_and_given_back(capacity: Capacity, steps: Steps):
    ledger = Ledger("n1", capacity)
    held: list[Grant] = []
    for step in steps:
        if isinstance(step, int):
            if held:
                ledger.give_back(held.pop(step % len(held)))
        elif isinstance(grant := ledger.fit(step), Grant):
            assert_granted_only_what_is_free(ledger, step, grant)
            ledger.take(grant)
            held.append(grant)
        assert_exact(ledger, held)
    for grant in held:
        ledger.give_back(grant)
    assert ledger.is_empty
    assert_exact(ledger, [])


@given(capacities(), st.lists(requests(("n1",)), max_size=10), requests(("n1",)))
def test_what_never_fits_says_so_full_or_empty(capacity: Capacity, others: list[Request], asked: Request):
    ledger = Ledger("n1", capacity)
    before = ledger.never(asked)
    for other in others:
        if isinstance(grant := ledger.fit(other), Grant):
            ledger.take(grant)
    assert ledger.never(asked) == before
    answer = ledger.fit(asked)
    if isinstance(answer, Grant):
        assert before is None
    elif answer.tier == Tier.NEVER:
        assert before is not None


@given(used_tables(), requests())
def test_a_node_that_the_columns_pass_over_would_not_fit_either(
    used: tuple[NodeTable, object], asked: Request
):
    table, _ = used
    mask = table.slots(asked).column > 0
    for row, ledger in enumerate(table.ledgers):
        named = asked.target is None or asked.target.host == ledger.name
        fits = named and isinstance(ledger.fit(asked), Grant)
        assert mask[row] or not (table.open[row] and fits)
        assert not (mask[row] and not table.open[row])
        assert not (mask[row] and not named)


@given(used_tables(), requests())
def test_could_ever_is_what_some_empty_node_says(used: tuple[NodeTable, object], asked: Request):
    table, _ = used
    named = [each for each in table if asked.target is None or asked.target.host == each.name]
    assert table.could_ever(asked) == any(ledger.never(asked) is None for ledger in named)


@given(used_tables(), requests(), st.sampled_from(HOSTS), capacities())
def test_columns_asked_before_a_node_came_know_it_afterwards(
    used: tuple[NodeTable, list[tuple[str, Grant]]], asked: Request, name: str, capacity: Capacity
):
    table, held = used
    table.slots(asked)  # makes the column of this kind of device
    table.could_ever(asked)
    for node, grant in held:
        table.give_back(table.rows[node], grant)
        assert [column.tolist() for column in table.columns.free] == [
            [ledger.free[row] for ledger in table] for row in range(FIXED)
        ]
    table.put(name, capacity)
    fresh = NodeTable()
    for ledger in table:
        fresh.put(ledger.name, ledger.capacity)
        fresh.set_open(ledger.name, bool(table.open[table.rows[ledger.name]]))
    assert np.array_equal((table.slots(asked).column > 0), (fresh.slots(asked).column > 0))
    assert table.could_ever(asked) == fresh.could_ever(asked)


def assert_granted_only_what_is_free(ledger: Ledger, asked: Request, grant: Grant) -> None:
    assert ledger.has_room(grant)
    assert ledger.devices_free.issuperset(grant.devices)
    assert (grant.cores, grant.memory_bytes, len(grant.devices)) == (
        asked.cores,
        asked.memory_bytes,
        asked.gpus,
    )
    assert len(set(grant.devices)) == len(grant.devices)
    assert set(grant.devices) <= {device.index for device in ledger.matching(asked)}
    assert sum(MILLICORES[cores] for _, cores in grant.numa_cores) <= MILLICORES[grant.cores]
    if asked.target is not None:
        assert grant.numa == asked.target.numa
        assert not asked.target.devices or grant.devices == asked.target.devices
    if grant.numa is not None and grant.cores:
        assert grant.numa_cores == ((grant.numa, grant.cores),)


def assert_exact(ledger: Ledger, held: list[Grant]) -> None:
    capacity = ledger.capacity
    used = [sum(amounts) for amounts in zip((0, 0, 0), *map(fixed, held), strict=True)]
    assert ledger.free == [has - taken for has, taken in zip(fixed(capacity), used, strict=True)]
    assert min(ledger.free) >= 0
    taken = [device for grant in held for device in grant.devices]
    assert len(set(taken)) == len(taken)
    assert ledger.devices_free == {device.index for device in capacity.devices} - set(taken)
    for numa in capacity.numa:
        there = sum(MILLICORES[cores] for grant in held for id, cores in grant.numa_cores if id == numa.id)
        assert ledger.numa_free[numa.id] == MILLICORES[numa.cores] - there >= 0


def test_a_refusal_is_a_reason_and_not_an_error():
    assert isinstance(Ledger("n1", Capacity(1, 0)).fit(Request(cores=2)), Reason)


@given(st.lists(parts, max_size=200), st.randoms(use_true_random=False))
def test_sums_of_thousandths_never_drift(cores: list[float], chance: Random):
    """Whatever is taken and given back in whatever order, an empty node is as empty as at first."""
    ledger, queues = Ledger("n1", Capacity(10_000, 0, (NumaNode(0, 10_000),))), Queues()
    grants = [ledger.fit(Request(cores=each)) for each in cores]
    for order in (1, -1):
        chance.shuffle(grants)
        for grant in grants:
            assert isinstance(grant, Grant)
            (ledger.take if order == 1 else ledger.give_back)(grant)
            (queues.take if order == 1 else queues.give_back)(("default", ""), grant)
    assert ledger.is_empty and ledger.numa_free == {0: 10_000_000}
    assert not any(queues.usage["default"]) if cores else not queues.usage
