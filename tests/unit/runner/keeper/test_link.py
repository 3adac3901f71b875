"""Frames between runner and keeper: whole, in pieces, too long, or no frames at all."""

from __future__ import annotations

import contextlib
import json
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.runner.keeper.attempt import RecordAndSend
from phalanx.runner.keeper.journal import Journal
from phalanx.runner.keeper.link import Lost, Outbox, SocketLink


def a_frame(*requests: object) -> bytes:
    body = json.dumps(requests).encode()
    return len(body).to_bytes(4, "big") + body


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    yield SocketLink(ours), theirs
    ours.close()
    theirs.close()


def test_frames_arrive_whole_however_they_were_cut(pair: tuple[SocketLink, socket.socket]):
    link, peer = pair
    heard: list[object] = []
    for byte in a_frame(["list"]) + a_frame(["stop", "k", 1]):
        peer.send(bytes([byte]))
        heard += link.receive()
    assert heard == [["list"], ["stop", "k", 1]]


def test_several_frames_at_once_are_all_heard(pair: tuple[SocketLink, socket.socket]):
    link, peer = pair
    peer.send(a_frame(["a"], ["b"]) + a_frame(["c"]) + a_frame(["d"])[:7])
    assert link.receive() == [["a"], ["b"], ["c"]]
    peer.send(a_frame(["d"])[7:])
    assert link.receive() == [["d"]]


def test_nothing_to_read_is_nothing_heard(pair: tuple[SocketLink, socket.socket]):
    assert pair[0].receive() == []


@pytest.mark.parametrize("sent", [b"\xff\xff\xff\xff", b"\0\0\0\2{}", b"\0\0\0\1x", b"\0\0\0\1\xff"])
def test_what_is_no_frame_ends_the_connection(pair: tuple[SocketLink, socket.socket], sent: bytes):
    link, peer = pair
    peer.send(sent)
    with pytest.raises(Lost):
        link.receive()


def test_the_end_of_the_stream_is_told(pair: tuple[SocketLink, socket.socket]):
    link, peer = pair
    peer.close()
    with pytest.raises(Lost):
        link.receive()


@given(st.binary(min_size=1, max_size=200))
def test_no_bytes_do_worse_than_end_the_connection(sent: bytes):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(sent)
        with contextlib.suppress(Lost):
            SocketLink(ours).receive()


def test_answers_of_a_turn_are_one_frame_and_wait_for_room(pair: tuple[SocketLink, socket.socket]):
    link, peer = pair
    large = json.dumps(["x" * 3_000_000])
    link.send(['["a"]', large])
    was_blocked = link.blocked
    received = b""
    peer.settimeout(5)
    while len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
        received += peer.recv(1 << 20)
        link.send([])
    assert (was_blocked, link.blocked) == (True, False)
    assert json.loads(received[4:])[0] == ["a"]


def test_of_a_task_that_ended_before_its_start_was_sent_only_the_end_is_sent(
    pair: tuple[SocketLink, socket.socket], tmp_path: Path
):
    journal = Journal(str(tmp_path / "journal"))
    outbox = Outbox(journal)
    outbox.link, peer = pair
    outbox.record_and_send(RecordAndSend('"a began"', True, began="a"))
    outbox.flush()
    outbox.record_and_send(RecordAndSend('"b began"', False, began="b"))
    outbox.record_and_send(RecordAndSend('"c began"', False, began="c"))
    outbox.record_and_send(RecordAndSend('"a ended"', False, ended="a"))
    outbox.record_and_send(RecordAndSend('"b ended"', True, ended="b"))
    outbox.flush()
    assert peer.recv(4096) == b'\0\0\0\x0b["a began"]\0\0\0\x1f["c began","a ended","b ended"]'
    journal.try_flush()
    lines = (tmp_path / "journal").read_text().split("\n")  # the next keeper is told of every start
    assert lines == ['"a began"', '"b began"', '"c began"', '"a ended"', '"b ended"', ""]
