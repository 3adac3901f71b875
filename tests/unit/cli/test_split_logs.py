"""Two logs that are followed are shown as one, by their times."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event

import pytest
from msgspec.structs import replace

from phalanx.api.schema.log_times import LogTimesView
from phalanx.cli import split_logs
from phalanx.cli.log_lines import LineTimes, without_first
from phalanx.cli.split_logs import TwoLogs
from phalanx.client.log_calls import LogPiece
from phalanx.clock import SystemClock
from phalanx.core.model.log_times import LogRow
from phalanx.errors import Unavailable
from tests.support.fake_client import ID, FakeClient

AT = 1_700_000_000.0
NOW = LogTimesView(1, "n1", AT, True, True)
LONG_S = 30.0  # a test ends long before lines are shown for being held so long


def followed(
    cluster: FakeClient,
    out: Iterator[LogPiece],
    err: Iterator[LogPiece],
    *later: LogRow,
    hold_s: float = LONG_S,
    rows: tuple[LogRow, ...] = (),
) -> Iterator[str]:
    """The lines of two logs of which only `rows` were known at first."""
    clock, first = SystemClock(), replace(NOW, rows=[*rows])
    times = LineTimes(cluster, ID, first, clock.monotonic())  # type: ignore[arg-type]
    cluster.times = replace(NOW, rows=[*rows[:-1], *later])
    logs = TwoLogs({"stdout": out, "stderr": err}, times, clock, hold_s)
    return (line.data.decode().rstrip() for line in logs.lines())


def pieces(*texts: bytes, at: int = 0) -> Iterator[LogPiece]:
    for text in texts:
        yield LogPiece(at, text, 1)
        at += len(text)


def then(first: Iterator[LogPiece], done: Event) -> Iterator[LogPiece]:
    """Set the event when the lines of these pieces have come."""
    yield from first
    done.set()


def after(done: Event, later: Iterator[LogPiece]) -> Iterator[LogPiece]:
    assert done.wait(20)
    yield from later


@pytest.mark.timeout(25)
def test_a_line_that_comes_later_and_was_written_earlier_is_shown_first() -> None:
    has_come = Event()
    err = then(pieces(b"err 2\n"), has_come)
    out = after(has_come, pieces(b"out 1\n", b"out 3\n"))
    rows = LogRow(AT, 6, 0), LogRow(AT + 1, 6, 6), LogRow(AT + 2, 12, 6)
    assert [*followed(FakeClient(), out, err, *rows)] == ["out 1", "err 2", "out 3"]


@pytest.mark.timeout(25)
def test_what_is_there_comes_at_once_and_in_order_though_one_log_has_an_unfinished_line() -> None:
    over = Event()

    def progress() -> Iterator[LogPiece]:
        yield from pieces(b"50%")
        yield from after(over, pieces(b" 100%\n", at=3))

    out = pieces(b"out 1\n", b"out 2\n")
    known = LogRow(AT, 6, 0), LogRow(AT + 1, 6, 3), LogRow(AT + 2, 12, 3)
    lines = followed(FakeClient(), out, progress(), *known, rows=known)
    assert [next(lines), next(lines)] == ["out 1", "out 2"]
    over.set()
    assert [*lines] == ["50% 100%"]


@pytest.mark.timeout(25)
def test_a_line_is_not_held_longer_than_a_moment() -> None:
    shown = Event()
    lines = followed(FakeClient(), pieces(b"out 1\n"), after(shown, pieces(b"err 2\n")), hold_s=0.1)
    assert next(lines) == "out 1"
    shown.set()
    assert [*lines] == ["err 2"]


@pytest.mark.timeout(25)
def test_no_more_than_so_many_lines_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_logs, "LINES_AHEAD", 4)
    over, read = Event(), []

    def many() -> Iterator[LogPiece]:
        for piece in pieces(*(b"%d\n" % number for number in range(10, 60))):
            read.append(piece)
            yield piece

    lines = followed(FakeClient(), many(), after(over, pieces()), hold_s=0.1)
    assert next(lines) == "10"
    assert len(read) <= 4 + 4 + 2, "those shown with it, those held since then, and what is on its way"
    assert [next(lines) for _ in range(49)] == [str(number) for number in range(11, 60)]
    over.set()
    assert [*lines] == []


@pytest.mark.timeout(25)
def test_without_their_times_lines_are_shown_as_they_came(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeClient()

    def refused(*_: object, **__: object) -> LogTimesView:
        raise Unavailable("node n1 is not connected")

    monkeypatch.setattr(cluster, "log_times", refused)
    has_come = Event()
    lines = followed(cluster, then(pieces(b"out\n"), has_come), after(has_come, pieces(b"err\n")))
    assert [*lines] == ["out", "err"]


@pytest.mark.timeout(25)
def test_a_line_that_began_before_since_and_goes_on_does_not_hold_the_other_log_up() -> None:
    over = Event()

    def progress() -> Iterator[LogPiece]:
        yield from pieces(b"%", at=2)
        yield from after(over, pieces(b" 100%\n", at=3))

    known = LogRow(AT, 0, 3), LogRow(AT + 1, 6, 3)
    lines = followed(FakeClient(), pieces(b"out 1\n"), without_first(progress()), *known, rows=known)
    assert next(lines) == "out 1"
    over.set()
    assert [*lines] == []
