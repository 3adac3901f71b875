"""What a follower of a log does after an attempt: read the next one, wait, or end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from phalanx.client.calls import Call
from phalanx.client.ids import AnyId
from phalanx.client.log_calls import LogCalls, LogPiece
from phalanx.client.log_reader import AWAY_PACE_S, PACE_FIRST_S, PACE_MAX_S, FollowedLog
from phalanx.errors import NotFound, Unavailable
from tests.support.fake_client import a_task

AWAY = Unavailable("node n1 is not connected", reason="LogUnavailable")


def read(log: FollowedLog, data: bytes, attempt: int = 1, offset: int = 0) -> bytes:
    return b"".join(log.shown(LogPiece(offset, data, attempt)))


def test_it_goes_on_with_the_next_attempt_and_says_so() -> None:
    log = FollowedLog(offset=3, lines=5)
    assert log.place() == {"attempt": None, "offset": 3, "lines": 5}
    assert read(log, b"lo\n", offset=3) == b"lo\n"
    assert log.after(a_task(attempt=1, status="Running")) == PACE_FIRST_S, "its end is not known yet"
    assert log.after(a_task(attempt=1, status="Pending")) == 1.5 * PACE_FIRST_S
    assert log.after(a_task(attempt=3, node="n3")) == "read"
    assert log.place() == {"attempt": 2, "offset": None, "lines": None}
    assert read(log, b"no end", attempt=2) == b"--- attempt 2 ---\nno end"
    assert log.after(a_task(attempt=3, node="n3")) == "read"
    assert b"".join(log.marks()) == b"\n--- attempt 3 on n3 ---\n"
    assert log.after(a_task(attempt=3, status="Completed")) == "end"


def test_it_is_not_asked_more_than_every_few_seconds() -> None:
    log = FollowedLog(None, None)
    waits = [log.after(a_task(attempt=0, status="Pending")) for _ in range(20)]
    assert (waits[0], waits[-1]) == (PACE_FIRST_S, PACE_MAX_S)


def test_a_node_that_is_not_connected_is_waited_for_and_read_on() -> None:
    log = FollowedLog(None, None)
    read(log, b"hello\n")
    for _ in range(2):
        log.broke(AWAY)
        assert log.after(a_task(unreachable=True)) == AWAY_PACE_S
        assert log.after(a_task()) == "read"
        assert log.place() == {"attempt": 1, "offset": 6, "lines": None}


def test_a_node_that_is_lost_is_left_for_the_next_attempt() -> None:
    log = FollowedLog(None, None)
    read(log, b"hello\n")
    log.broke(AWAY)
    assert log.after(a_task(unreachable=True)) == AWAY_PACE_S
    assert log.after(a_task(status="Pending")) == PACE_FIRST_S
    assert log.after(a_task(attempt=2)) == "read"
    assert log.place()["attempt"] == 2
    log.broke(NotFound("it never started"))
    assert log.after(a_task(attempt=2, status="Failed")) == "end"


def test_what_cannot_be_read_is_told() -> None:
    with pytest.raises(Unavailable):
        FollowedLog(None, None).broke(AWAY)
    log = FollowedLog(None, None)
    read(log, b"hello\n")
    log.broke(AWAY)
    with pytest.raises(Unavailable):
        log.after(a_task(status="Failed"))


class Renamed(LogCalls):
    """The name means another job as soon as the log has been read."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def log_pieces(self, id: AnyId, **_place: Any) -> Iterator[LogPiece]:
        self.asked.append(str(id))
        yield LogPiece(0, b"hello\n", 1)

    def _ask(self, call: Call[Any]) -> Any:
        self.asked.append(call.path.rpartition("/")[2])
        return a_task("01hzzzzzzzzzzzzzzzzzzzzada", attempt=1, status="Completed")


def test_it_stays_with_the_job_that_was_named() -> None:
    client = Renamed()
    assert b"".join(client.logs("train", follow=True)) == b"hello\n"
    assert client.asked == ["train", *["01hzzzzzzzzzzzzzzzzzzzzada"] * 2]
