"""A watch as text, and text as a watch again."""

from __future__ import annotations

import pytest

from phalanx.api.schema.jobs import WatchEvent
from phalanx.api.schema.sse import LINE_BYTES_MAX, EventReader, spell_error, spell_event, spell_position
from phalanx.errors import Gone, PhalanxError, Unavailable

ONE = WatchEvent(1, 1.0, "JobSubmitted", job="j1", text='with "quotes",\nlines and ünicode')
TWO = WatchEvent(2, 2.0, "TaskEnded", task="j1", exit_code=-9)


def test_events_come_back_however_they_are_cut():
    text = spell_event(ONE) + spell_event(None) + spell_event(TWO)
    for size in range(1, len(text) + 1):
        feed = EventReader()
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert [event for piece in pieces for event in feed.take(piece)] == [ONE, TWO]
        assert feed.last == 2


def test_a_position_moves_the_last_id_and_brings_no_event():
    feed = EventReader()
    assert list(feed.take(spell_position(41))) == []
    assert feed.last == 41


def test_half_an_event_is_forgotten_when_the_connection_is_a_new_one():
    feed = EventReader(0)
    list(feed.take(spell_event(ONE)[:-1]))
    assert feed.last == 0
    feed.restart()
    assert list(feed.take(spell_event(ONE))) == [ONE]


def test_other_spellings_of_the_format_are_read():
    text = b'\r\n:hello\r\nid:7\r\nretry: 5\r\nevent: message\r\ndata:{\r\ndata: "revision": 7,\r\n'
    text += b'data: "at": 1.0, "event": "X"}\r\n\r\n'
    feed = EventReader()
    assert [event.event for event in feed.take(text)] == ["X"]
    assert feed.last == 7


def test_an_id_that_is_no_revision_is_ignored():
    feed = EventReader(3)
    list(feed.take(b"id: x\n\nid: -1\n\nid: " + b"9" * 40 + b"\n\n"))
    assert feed.last == 3


def test_an_error_is_raised_as_itself():
    with pytest.raises(Gone):
        list(EventReader().take(spell_error(Gone("list again"))))
    with pytest.raises(PhalanxError):
        list(EventReader().take(b"event: error\ndata: what?\n\n"))


def test_a_line_without_end_is_not_kept():
    with pytest.raises(Unavailable):
        list(EventReader().take(b"x" * (LINE_BYTES_MAX + 1)))
