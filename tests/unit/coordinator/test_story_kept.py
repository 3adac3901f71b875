"""A story whose beginning is no longer kept says so."""

from __future__ import annotations

from phalanx.api.schema.jobs import StoryLine
from phalanx.coordinator.questions import _begun


def a_line(revision: int, event: str) -> StoryLine:
    return StoryLine(revision, 5.0, event, "it happened")


def test_a_whole_story_is_told_as_it_is():
    lines = [a_line(3, "JobSubmitted"), a_line(4, "TaskPlaced")]
    assert _begun(lines, None) == lines


def test_a_story_without_its_beginning_says_so_first():
    lines = _begun([a_line(4, "TaskPlaced")], None)
    assert [line.event for line in lines] == ["NotKept", "TaskPlaced"]
    assert "no longer kept" in lines[0].text


def test_a_story_of_which_nothing_is_kept_says_that():
    assert [line.event for line in _begun([], None)] == ["NotKept"]


def test_a_later_page_has_no_beginning_to_miss():
    assert _begun([a_line(4, "TaskPlaced")], "3") == [a_line(4, "TaskPlaced")]
