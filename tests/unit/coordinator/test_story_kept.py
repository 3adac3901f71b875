"""A story whose beginning is no longer kept says so; its newest lines can be asked for."""

from __future__ import annotations

import pytest

from phalanx.api.schema.jobs import StoryLine
from phalanx.api.schema.queries import NEWEST
from phalanx.coordinator import story_reads
from phalanx.coordinator.story_reads import _begun
from phalanx.core.cluster.inputs import Drain
from tests.unit.coordinator.test_declarations import a_coordinator


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def a_line(revision: int, event: str) -> StoryLine:
    return StoryLine(revision, 5.0, event, "it happened")


def test_a_whole_story_is_told_as_it_is():
    lines = [a_line(3, "JobSubmitted"), a_line(4, "TaskPlaced")]
    assert _begun(lines, None) == lines


def test_a_node_that_was_admitted_by_a_token_begins_with_that():
    lines = [a_line(3, "JoinRedeemed"), a_line(4, "NodeJoined"), a_line(5, "NodeDrained")]
    assert _begun(lines, None) == lines
    assert _begun(lines[:1], None) == lines[:1]
    assert _begun([lines[0], lines[2]], None)[0].event == "NotKept"


def test_a_story_without_its_beginning_says_so_first():
    lines = _begun([a_line(4, "TaskPlaced")], None)
    assert [line.event for line in lines] == ["NotKept", "TaskPlaced"]
    assert "no longer kept" in lines[0].text


def test_a_story_of_which_nothing_is_kept_says_that():
    assert [line.event for line in _begun([], None)] == ["NotKept"]


def test_a_later_page_has_no_beginning_to_miss():
    assert _begun([a_line(4, "TaskPlaced")], "3") == [a_line(4, "TaskPlaced")]


@pytest.mark.anyio
@pytest.mark.parametrize("back", [1, 1000])  # revisions: less than the cluster has, and more
async def test_the_newest_lines_of_a_node_are_told_in_their_order(back: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(story_reads, "NEWEST_BACK", back)
    async with a_coordinator() as here:
        for node in ("n0", "n0", "n0", "n1", "n1"):
            await here.leadership.ask([Drain(node, f"ticket {here.leadership.state.revision}")])
        whole = await here.commands.story("n0", cursor=None, limit=100)
        assert [line.event for line in whole.items] == ["NodeJoined", *3 * ["NodeDrained"]]
        newest = await here.commands.story("n0", cursor=NEWEST, limit=2)
        assert newest.items == whole.items[-2:]
        assert newest.next_cursor is not None
        older = await here.commands.story("n0", cursor=newest.next_cursor, limit=2)
        assert (older.items, older.next_cursor) == (whole.items[:2], None)
        assert (await here.commands.story("n0", cursor=NEWEST, limit=100)).items == whole.items
