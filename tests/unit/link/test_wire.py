"""What a runner may say of an end: within limits, whatever it is. And long lists, which travel in several frames."""

from __future__ import annotations

import pytest
from msgspec import msgpack

from phalanx.core.model.orders import RESULT_BYTES_MAX, Disposition, Ended, Exit, Report, Returned, Stop, Why
from phalanx.core.model.task_results import LoadedNames, PartResult
from phalanx.link import exits, wire

KEY = ("0" * 26, 0, 1)


def wrong_of(exit: Exit) -> str:
    return wire.why_wrong(wire.Reports(1, [Ended(KEY, exit)], 1))


@pytest.mark.parametrize(
    ("exit", "field"),
    [
        (Exit(Why.NONE, 0, result="1" * (RESULT_BYTES_MAX + 1)), "exit.result"),
        (Exit(Why.NONE, 0, result="é" * (RESULT_BYTES_MAX // 2 + 1)), "exit.result"),
        (Exit(Why.NONE, 0, result_bytes=65_537, result_sha256="a" * 64), "exit.result_bytes"),
        (Exit(Why.NONE, 0, result_bytes=5000), "exit.result_sha256"),
        (Exit(Why.NONE, 0, result_bytes=5000, result_sha256="z" * 64), "exit.result_sha256"),
        (Exit(Why.NONE, 0, parts=(PartResult("j", "1" * (RESULT_BYTES_MAX + 1)),)), "exit.parts.result"),
        (Exit(Why.NONE, 0, parts=(PartResult("j", "", 65_537, "a" * 64),)), "exit.parts.result_bytes"),
        (Exit(Why.NONE, 0, parts=(PartResult("j" * 513),)), "exit.parts"),
        (Exit(Why.NONE, 0, parts=(PartResult("j"),) * 65), "exit.parts: 65"),
        (Exit(Why.NONE, 0, loaded=LoadedNames(("m" * 2000,), ("m" * 2097,))), "exit.loaded"),
        (Exit(Why.NONE, 0, loaded=LoadedNames(("",) * 4097, ())), "exit.loaded"),
        (Exit(Why.EXITED, 1, message="x" * (exits.TEXT_MAX + 1)), "exit:"),
        (Exit(Why.EXITED, 1, stderr_tail="x" * (exits.TEXT_MAX + 1)), "exit:"),
    ],
)
def test_too_much_is_refused_and_the_field_named(exit: Exit, field: str):
    assert wrong_of(exit).startswith(field)


def test_as_much_as_may_be_is_taken():
    longest = "x" * exits.TEXT_MAX
    assert wrong_of(Exit(Why.EXITED, 1, 1.0, 2.0, longest, longest, result="1" * RESULT_BYTES_MAX)) == ""
    parts = (PartResult("j", "1" * RESULT_BYTES_MAX), *(PartResult("j", "", 65_536, "a" * 64),) * 63)
    loaded = LoadedNames(("m" * 2000,), ("m" * 2096,))
    assert wrong_of(Exit(Why.NONE, 0, 1.0, 2.0, is_own=True, parts=parts, loaded=loaded)) == ""


def unpacked(message: wire.Message) -> list[wire.Message]:
    return wire.Unpacker().feed(wire.pack(message))


def all_of(messages: list[wire.Message]) -> list[object]:
    return [each for said in messages if isinstance(said, wire.Reports) for each in said.reports]


def test_a_list_that_is_short_travels_in_one_frame():
    for count in (0, 1, 300):
        reports = wire.Reports(3, [Returned((f"{at:026d}", 0, 1)) for at in range(count)], 7)
        assert unpacked(reports) == [reports]
    alone = wire.Reports(3, [Ended(KEY, Exit(Why.EXITED, 1, message="x" * (wire.LIST_MAX + 1)))], 7)
    assert unpacked(alone) == [alone]
    file = wire.PutFile(1, KEY, "stdout", "", 2 * wire.LIST_MAX, 0, b"x" * (2 * wire.LIST_MAX))
    assert unpacked(file) == [file]


@pytest.mark.parametrize("lengths", [[70_000] * 600, [10] * 30_000, [500_000, 10, 10, 500_000, 10, 500_000]])
def test_a_long_list_travels_in_frames_of_which_each_is_taken(lengths: list[int]):
    ends: list[Report] = [
        Ended((f"{at:026d}", 0, 1), Exit(Why.NONE, 0, message="x" * length))
        for at, length in enumerate(lengths)
    ]
    frames = unpacked(wire.Reports(3, ends, 7))
    assert all_of(frames) == ends
    assert all(isinstance(each, wire.Reports) and (each.epoch, each.generation) == (3, 7) for each in frames)
    assert max(len(wire.pack(each)) for each in frames) <= wire.LIST_MAX + 4
    assert len(frames) < 2 + sum(lengths) / wire.LIST_MAX * 2 + len(lengths) / wire.REPORTS_MAX * 4


def test_no_frame_has_more_reports_than_may_be_in_one():
    many = [Returned((f"{at % 10}", at, 1)) for at in range(wire.REPORTS_MAX + 1)]
    whole = wire.Reports(3, list(many), 7)
    assert len(msgpack.encode(whole)) < wire.LIST_MAX
    frames = unpacked(whole)
    assert [wire.why_wrong(each) for each in frames] == [""] * 2
    assert all_of(frames) == many


def test_dispositions_and_orders_are_told_in_parts_as_well():
    items = [((f"{at:026d}", 0, 1), Disposition.ACCEPTED) for at in range(60_000)]
    parts = unpacked(wire.Dispositions(3, items, 7))
    assert [each for part in parts if isinstance(part, wire.Dispositions) for each in part.items] == items
    stops = [Stop(key, Why.CANCELLED, 5.0) for key, _ in items]
    orders = unpacked(wire.Orders(3, list(stops)))
    assert [each for part in orders if isinstance(part, wire.Orders) for each in part.orders] == stops
    assert len(parts) > 1 and len(orders) > 1
