"""Logs of a node without a log connection: it is away, or its runner serves none."""

from __future__ import annotations

from typing import Any, cast

import pytest
from msgspec import structs

from phalanx.coordinator import logs
from phalanx.coordinator.credentials import Credentials
from phalanx.coordinator.logs import LogLinks, WantedLog
from phalanx.errors import NotFound, Unavailable
from phalanx.link.wire import VERSION, LogData, LogHello, ReadLog


class Unanswering:
    """A connection left over from a machine that is gone."""

    def send(self, messages: object) -> None:
        pass


@pytest.mark.anyio
async def test_a_node_that_is_offline_is_not_waited_for_though_its_connection_is_left(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(logs, "AWAY_WITHIN_S", 0.05)
    keys = Credentials.local("user-token", "node-token")
    links = LogLinks(keys, is_online=lambda _: False)
    assert links.opened(cast(Any, Unanswering()), LogHello(VERSION, "node-token", "gone", "1"))
    with pytest.raises(Unavailable, match="node gone is offline, and did not answer"):
        await anext(links.read("gone", KEY, WantedLog("stdout")))


KEY = ("01kx0000000000000000000001", 0, 1)


@pytest.mark.anyio
@pytest.mark.parametrize(("node", "reason"), [("away", "LogUnavailable"), ("here", "LogNotServed")])
async def test_a_node_that_serves_no_logs_is_told_from_one_that_is_away(
    node: str, reason: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logs, "LOG_LINK_WITHIN_S", 0.0)
    links = LogLinks(Credentials.local("user-token", "node-token"), is_online=lambda name: name == "here")
    with pytest.raises(Unavailable) as refused:
        await anext(links.read(node, KEY, WantedLog("stdout")))
    assert refused.value.reason == reason
    assert links.serves(node) == (node == "away")


class Node:
    """A runner that does not know the attempt when it is asked first, and then has a line of it that has ended."""

    def __init__(self, *answers: LogData) -> None:
        self.links = LogLinks(Credentials.local("user-token", "node-token"), is_online=lambda _: True)
        assert self.links.opened(cast(Any, self), LogHello(VERSION, "node-token", "n1", "1"))
        self.answers = list(answers)

    def send(self, messages: list[object]) -> None:
        for message in messages:
            if isinstance(message, ReadLog):
                self.links.arrived(cast(Any, self), structs.replace(self.answers.pop(0), id=message.id))


UNKNOWN = LogData(0, 0, b"", 0, ended=True, missing=True)
LINE = LogData(0, 0, b"up\n", 3, ended=True)


async def pieces(node: Node, *, follow: bool, live: list[bool]) -> list[tuple[bytes, bool]]:
    """What is read, and whether it is the end; `live` says whether the attempt has not ended, each time it is asked."""
    reading = node.links.read("n1", KEY, WantedLog("stdout", follow=follow, is_live=lambda: live.pop(0)))
    return [(each.data, each.end) async for each in reading]


@pytest.mark.anyio
async def test_an_attempt_that_its_node_does_not_know_yet_has_an_empty_log():
    assert await pieces(Node(UNKNOWN), follow=False, live=[True]) == [(b"", True)]
    with pytest.raises(NotFound, match="no log of attempt 1 on n1"):
        await pieces(Node(UNKNOWN), follow=False, live=[False])


@pytest.mark.anyio
async def test_who_follows_it_waits_until_its_node_knows_it_or_it_has_ended():
    node = Node(UNKNOWN, UNKNOWN, LINE)
    assert await pieces(node, follow=True, live=[True, True]) == [(b"", False), (b"", False), (b"up\n", True)]
    assert await pieces(Node(UNKNOWN, UNKNOWN), follow=True, live=[True, False]) == [
        (b"", False),
        (b"", True),
    ]
