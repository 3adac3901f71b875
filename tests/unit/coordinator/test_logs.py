"""Logs of a node without a log connection: it is away, or its runner serves none."""

from __future__ import annotations

from typing import Any, cast

import pytest

from phalanx.coordinator import logs
from phalanx.coordinator.credentials import Credentials
from phalanx.coordinator.logs import LogLinks
from phalanx.errors import Unavailable
from phalanx.link.wire import VERSION, LogHello


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
        await anext(links.read("gone", KEY, stream="stdout", offset=0, lines=None, follow=False))


KEY = ("01kx0000000000000000000001", 0, 1)


@pytest.mark.anyio
@pytest.mark.parametrize(("node", "reason"), [("away", "LogUnavailable"), ("here", "LogNotServed")])
async def test_a_node_that_serves_no_logs_is_told_from_one_that_is_away(
    node: str, reason: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logs, "LOG_LINK_WITHIN_S", 0.0)
    links = LogLinks(Credentials.local("user-token", "node-token"), is_online=lambda name: name == "here")
    with pytest.raises(Unavailable) as refused:
        await anext(links.read(node, KEY, stream="stdout", offset=0, lines=None, follow=False))
    assert refused.value.reason == reason
    assert links.serves(node) == (node == "away")
