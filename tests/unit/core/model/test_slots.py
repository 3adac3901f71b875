"""Slots of a class and the ranking of nodes: updated by what changed, and the same as if counted again."""

from __future__ import annotations

from fnmatch import fnmatchcase

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.core.model import columns as columns_module
from phalanx.core.model.amounts import SLOTS_MAX
from phalanx.core.model.columns import Changes
from phalanx.core.model.ledger import Ledger
from phalanx.core.model.resources import Capacity, Device, Grant, NumaNode, Request, parse_target
from phalanx.core.model.score import SCORES, SHELF
from phalanx.core.model.table import CLASSES_MAX, NodeTable
from phalanx.core.placement.best_node import BestNode
from tests.support.topologies import THREE, labels

REQUESTS = [
    Request(cores=2),
    Request(cores=0, memory_bytes=3),
    Request(cores=1, gpus=1),
    Request(cores=1, gpus=2, gpu_type="h100"),
    Request(cores=0, gpus=1, gpu_memory_bytes=80),
    Request(cores=1, gpus=1, gpu_type="*100"),
    Request(cores=1, labels=(("rack", "r1"),)),
]


def a_node(table: NodeTable, name: str, path: str = "", cores: int = 8, gpus: str = "") -> None:
    """GPUs by kind: "a100 h100"; each has 40 or 80 of memory."""
    devices = tuple(Device(at, kind, 80 if kind == "h100" else 40) for at, kind in enumerate(gpus.split()))
    table.put(name, Capacity(cores, 10, (), devices, labels(path)))
    table.set_open(name, True)


def a_table(*nodes: tuple[str, int, str]) -> NodeTable:
    table = NodeTable()
    table.set_topology(THREE)
    for at, (path, cores, gpus) in enumerate(nodes):
        a_node(table, f"n{at + 1}", path, cores, gpus)
    return table


def three() -> NodeTable:
    return a_table(("s1/b1/r1", 8, "a100 h100"), ("s1/b1/r2", 4, ""), ("s2/b1/r1", 6, "h100 h100"))


def assert_up_to_date(table: NodeTable) -> None:
    for request in REQUESTS:
        column, sums, tally = table.slots(request)
        anew = [ledger.slots(request) if table.open[row] else 0 for row, ledger in enumerate(table.ledgers)]
        assert column.tolist() == anew
        assert table.columns.slots(request).tolist() == anew
        assert [each.tolist() for each in sums] == [each.tolist() for each in table.tree.sums(column)]
        for count in range(10):
            least = min((slots for slots in anew if slots >= count), default=None)
            assert tally.least(count) == least
            if least is not None:
                having = (np.array(anew) == least).astype(np.int64)
                inner = [*table.tree.sums(having)] or [
                    having.sum(keepdims=True)
                ]  # without layers all are in one
                assert tally.domains(least).tolist() == inner[-1].tolist()


def test_slots_are_the_least_of_what_each_resource_allows():
    table = three()
    assert table.slots(Request(cores=2)).column.tolist() == [4, 2, 3]
    assert table.slots(Request(cores=3, memory_bytes=5)).column.tolist() == [2, 1, 2]
    assert table.slots(Request(cores=1, gpus=1)).column.tolist() == [2, 0, 2]
    assert table.slots(Request(cores=1, gpus=1, gpu_type="h100")).column.tolist() == [1, 0, 2]
    assert table.slots(Request(labels=(("rack", "r1"),))).column.tolist() == [8, 0, 6]


def test_a_pattern_counts_each_kind_that_fits_it_also_of_a_node_that_joins_later():
    table = a_table(("s1/b1/r1", 8, "a10g h100"), ("s1/b1/r2", 8, "a100 a10"), ("s2/b1/r1", 8, "v100"))
    any_a10 = Request(cores=1, gpus=1, gpu_type="*a10*")
    assert table.slots(any_a10).column.tolist() == [1, 2, 0]
    a_node(table, "n4", "s2/b1/r1", 8, "a10-8q h100 a10")
    assert table.slots(any_a10).column.tolist() == [1, 2, 0, 2]
    table.take(3, Grant(1, 0, (0,)))
    assert table.slots(any_a10).column.tolist() == [1, 2, 0, 1]
    a_node(table, "n3", "s2/b1/r1", 8, "a10")
    assert table.slots(any_a10).column.tolist() == [1, 2, 1, 1]


def test_slots_are_summed_for_every_domain():
    sums = three().slots(Request(cores=2)).sums
    assert [each.tolist() for each in sums] == [[6, 3], [6, 3], [4, 2, 3]]


def test_a_task_that_asks_for_nothing_fits_often_but_not_without_end():
    table = three()
    assert table.slots(Request(cores=0)).column.tolist() == [SLOTS_MAX] * 3
    table.promise(0, Grant(9, 0))
    assert table.slots(Request(cores=0)).column.tolist()[0] == 0, "more is promised than there is"
    assert table.slots(Request(cores=0, memory_bytes=1)).column.tolist() == [0, 10, 10], (
        "and when counted anew"
    )


def test_a_closed_node_has_no_slots():
    table = three()
    table.slots(Request(cores=2))
    table.set_open("n1", False)
    assert table.slots(Request(cores=2)).column.tolist() == [0, 2, 3]
    assert table.ever(Request(cores=2))[0].tolist() == [4, 2, 3]


def test_a_promise_that_overdraws_a_node_leaves_none():
    table = three()
    table.take(0, Grant(6, 0))
    table.slots(Request(cores=2))
    table.promise(0, Grant(6, 0))
    assert table.slots(Request(cores=2)).column.tolist() == [0, 2, 3]
    table.withdraw(0, Grant(6, 0))
    assert table.slots(Request(cores=2)).column.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("target", "slots"), [("n1", 2), ("n1::1", 1), ("n1:1", 1), ("n1:7", 0), ("nowhere", 0)]
)
def test_a_target_leaves_slots_on_its_node_alone(target: str, slots: int):
    table = NodeTable()
    numa, devices = (NumaNode(0, 6), NumaNode(1, 3)), (Device(0, "h100"), Device(1, "h100"))
    table.put("n1", Capacity(9, 10, numa, devices))
    a_node(table, "n2", gpus="h100")
    table.set_open("n1", True)
    found = table.slots(Request(cores=2, gpus=1, target=parse_target(target)))
    assert found.column.tolist() == [slots, 0]


def test_a_class_follows_only_what_has_changed(monkeypatch: pytest.MonkeyPatch):
    table = three()
    table.slots(Request(cores=2))
    table.take(2, Grant(4, 0))
    read: list[int] = []
    slots_of = table.columns.slots_of

    def reading(row: int, asked: Request) -> int:
        read.append(row)
        return slots_of(row, asked)

    monkeypatch.setattr(table.columns, "slots_of", reading)
    monkeypatch.setattr(table.columns, "slots", None)
    assert table.slots(Request(cores=2)).column.tolist() == [4, 2, 1]
    assert read == [2]


def test_changes_too_old_to_know_are_told_apart_from_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(columns_module, "CHANGES_KEPT", 4)
    changes = Changes()
    mark = changes.mark
    assert changes.since(mark) == set()
    for row in range(8):
        changes.note(row)
    assert changes.since(mark) == set(range(8))
    changes.note(8)
    assert changes.since(mark) is None
    assert changes.since(changes.mark - 2) == {7, 8}


def test_classes_are_bounded_and_the_last_asked_is_kept():
    table = three()
    for memory in range(2 * CLASSES_MAX):
        table.slots(Request(cores=1, memory_bytes=memory))
    assert len(table._slots) == CLASSES_MAX
    assert table.slots(Request(cores=2)).column.tolist() == [4, 2, 3]


steps = st.lists(
    st.one_of(
        st.tuples(st.just("take"), st.integers(0, 5), st.sampled_from(REQUESTS)),
        st.tuples(st.just("promise"), st.integers(0, 5), st.sampled_from(REQUESTS)),
        st.tuples(st.just("end"), st.integers(0, 20), st.none()),
        st.tuples(st.just("close"), st.integers(0, 5), st.booleans()),
        st.tuples(st.just("join"), st.integers(0, 3), st.none()),
        st.tuples(st.just("relabel"), st.integers(0, 5), st.sampled_from(["s1/b1/r1", "s9//r1", ""])),
    ),
    max_size=40,
)


@settings(max_examples=60)
@given(steps, st.sampled_from([0, 2]))
def test_whatever_happens_slots_are_as_if_counted_anew(steps, few):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("phalanx.core.model.table.FEW", few)
        play(steps)


def play(steps) -> None:
    table, held = three(), []
    for what, at, more in steps:
        row = at % len(table)
        if what in ("take", "promise"):
            grant = table.ledgers[row].fit(more)
            if isinstance(grant, Grant):
                getattr(table, what)(row, grant)
                held.append((what, row, grant))
        elif what == "end" and held:
            how, row, grant = held.pop(at % len(held))
            (table.give_back if how == "take" else table.withdraw)(row, grant)
        elif what == "close":
            table.set_open(table.names[row], more)
        elif what == "join":
            a_node(table, f"n{len(table) + 1}", f"s1/b{at}/r1", 4, "h100" * (at > 1))
        elif what == "relabel" and not any(each[1] == row for each in held):
            a_node(table, table.names[row], more, 4)
        assert_up_to_date(table)
        assert_ranked(table)


def assert_ranked(table: NodeTable) -> None:
    """The best spot is the node that the score names of those that have room, the earlier one of equals."""
    for request in REQUESTS:
        could = [row for row, ledger in enumerate(table.ledgers) if table.open[row] and ledger.slots(request)]
        packed = min(could, key=lambda row: (tightness(table.ledgers[row], request), row), default=None)
        roomy = max(could, key=lambda row: (table.ledgers[row].cores_free, -row), default=None)
        for score, best in zip(SCORES, (packed, roomy), strict=True):
            spot = BestNode(table, request, score).best()
            assert (None if spot is None else spot[0]) == best
            scores = table.scores.column(request, score)
            assert all(scores[row] == table.scores.of(row, request, score) for row in could)


def is_of_type(request: Request, device: Device) -> bool:
    """As `fnmatch` says, which has nothing to do with our code."""
    return request.gpu_type is None or fnmatchcase(device.kind, request.gpu_type)


def tightness(ledger: Ledger, request: Request) -> tuple[int, ...]:
    """What `pack` compares, without packing it into one number."""
    free = [
        device.memory_bytes
        for device in ledger.capacity.devices
        if device.index in ledger.devices_free
        and is_of_type(request, device)
        and device.memory_bytes >= request.gpu_memory_bytes
    ]
    rest = len(free), *ledger.free
    if not request.gpus:
        return (0, *rest) if not ledger.devices else (1, *rest) if not free else (2 + min(free), *rest)
    alone = [size for size in free if free.count(size) >= request.gpus]
    return min(alone) if alone else sorted(free)[request.gpus - 1], *rest


def test_the_best_of_many_shelves_is_found_and_the_earlier_row_wins():
    table = NodeTable()
    for row in range(3 * SHELF):
        a_node(table, f"n{row}", cores=4)
    spots = BestNode(table, Request(cores=3), "most-free-cores")
    found: list[int] = []
    for row in (SHELF + 1, 2 * SHELF + 1):
        a_node(table, f"n{row}", cores=8)
    while len(found) < 4:
        spot = spots.best()
        assert spot is not None
        table.take(*spot)
        found.append(spot[0])
    assert found == [SHELF + 1, 2 * SHELF + 1, SHELF + 1, 2 * SHELF + 1]
    assert BestNode(table, Request(cores=3), "most-free-cores").best() == (0, Grant(3, 0))
    assert BestNode(table, Request(cores=1)).best() == (SHELF + 1, Grant(1, 0))


@pytest.mark.parametrize("score", SCORES)
def test_a_long_run_takes_the_nodes_in_the_same_order_as_one_question_after_another(score):
    asked, run = a_table(*[("", 9, "")] * 5, ("", 30, "")), a_table(*[("", 9, "")] * 5, ("", 30, ""))
    spots = BestNode(run, Request(cores=2), score)
    while (spot := spots.best()) is not None:
        assert spot == BestNode(asked, Request(cores=2), score).best()
        for table in (asked, run):
            table.take(*spot)
        spots.taken(spot[0])
        if spot[0] == 3 and run.ledgers[2].cores_free >= 5:  # another task takes from another node meanwhile
            for table in (asked, run):
                table.take(2, Grant(5, 0))
    assert BestNode(asked, Request(cores=2), score).best() is None


def test_columns_grow_by_doubling_and_stay_in_step():
    table = NodeTable()
    grown = 0
    for row in range(300):
        before = table.columns._numbers
        a_node(table, f"n{row}", cores=row)
        grown += table.columns._numbers is not before
    assert grown <= 4
    assert (table.columns.free[0] // 1000).tolist() == list(range(300))
    assert isinstance(table.open, np.ndarray) and table.open.all()


others = st.tuples(
    st.sampled_from(["nothing", "declined", "outdone", "take", "end", "close"]),
    st.integers(0, 9),
    st.integers(1, 3),
)


@settings(max_examples=600)
@given(st.lists(others, min_size=5, max_size=30), st.sampled_from([0, 1]), st.sampled_from(SCORES))
def test_whatever_others_do_meanwhile_a_run_goes_on_with_the_best(steps, gpus, score):
    nodes = [("", 8, "a100 a100 h100 h100"), ("", 5, "h100 h100")] if gpus else [("", 8, ""), ("", 6, "")]
    table, held = a_table(*nodes), []
    request = Request(cores=1, gpus=gpus)
    run = BestNode(table, request, score)
    run._until_run = 1
    for what, at, cores in [("nothing", 0, 1)] * 2 + steps:
        spot = run.best()
        assert spot == BestNode(table, request, score).best()
        if spot is not None and what not in ("declined", "outdone"):
            table.take(*spot)
            held.append(spot)
            run.taken(spot[0])
        row = at % len(table)
        grant = table.ledgers[row].fit(Request(cores=cores))
        if what in ("take", "outdone") and isinstance(grant, Grant):
            table.take(row, grant)
            held.append((row, grant))
        elif what == "end" and held:
            table.give_back(*held.pop(at % len(held)))
        elif what == "close":
            table.set_open(table.names[row], cores > 1)
