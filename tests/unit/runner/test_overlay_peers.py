"""Names of other nodes: those that cannot be resolved keep nobody from the others."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from phalanx.runner import overlay_peers
from phalanx.runner.overlay_peers import AGAIN_S, PeerAddresses
from tests.support.waiting import wait_until

PEERS = [("10.128.0.0/22", "192.0.2.1"), ("10.128.4.0/22", "two.test"), ("10.128.8.0/22", "bad.test")]


class FixedClock:
    at = 100.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


class Names:
    """What stands for what; others cannot be resolved, and `slow.test` has no answer until it is let go."""

    def __init__(self) -> None:
        self.known = {"two.test": "192.0.2.2"}
        self.asked: list[str] = []
        self.go = threading.Event()

    def resolve(self, name: str) -> str:
        self.asked.append(name)
        if name == "slow.test":
            self.go.wait(20)
        if name not in self.known:
            raise OSError(-2, "Name or service not known")
        return self.known[name]


@pytest.fixture
def names() -> Iterator[Names]:
    made = Names()
    yield made
    made.go.set()


def test_one_that_cannot_be_resolved_is_left_out_and_tried_again_later(names: Names) -> None:
    clock = FixedClock()
    peers = PeerAddresses(names.resolve, clock)
    found = [("10.128.0.0/22", "192.0.2.1"), ("10.128.4.0/22", "192.0.2.2")]
    assert peers.of(PEERS) == (found, ["bad.test"])
    names.known["bad.test"] = "192.0.2.3"
    assert peers.of(PEERS) == (found, ["bad.test"]), "not at once"
    assert names.asked.count("bad.test") == 1
    clock.at += AGAIN_S
    assert peers.of(PEERS) == ([*found, ("10.128.8.0/22", "192.0.2.3")], [])


def test_what_was_known_is_kept_when_the_name_cannot_be_resolved_any_more(names: Names) -> None:
    clock = FixedClock()
    peers = PeerAddresses(names.resolve, clock)
    assert peers.of(PEERS[1:2])[1] == []
    names.known.clear()
    clock.at += AGAIN_S
    assert peers.of(PEERS[1:2]) == ([("10.128.4.0/22", "192.0.2.2")], [])


def test_nobody_waits_for_a_name_without_an_answer(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlay_peers, "WAIT_S", 0.05)
    names.known["slow.test"] = "192.0.2.9"
    peers = PeerAddresses(names.resolve, FixedClock())
    slow = [("10.128.12.0/22", "slow.test")]
    assert peers.of(slow) == ([], ["slow.test"])
    assert peers.of(slow) == ([], ["slow.test"])
    assert names.asked == ["slow.test"]
    names.go.set()
    wait_until(lambda: peers.of(slow) == ([("10.128.12.0/22", "192.0.2.9")], []), 10.0, "the late answer")
