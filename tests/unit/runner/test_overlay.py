"""The networks of tasks follow the coordinator's map; what is left of an earlier runner is removed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from msgspec import structs

from phalanx.core.model.resources import Capacity
from phalanx.errors import ConfigError
from phalanx.link.overlay import OverlayMap
from phalanx.runner.overlay import TaskNetworks, mark_of
from phalanx.runner.turn import RunnerEngine
from phalanx.runner.wireguard import OverlayPeer

MAP = OverlayMap("10.128.0.0/12", "10.128.0.0/22", [("10.128.4.0/22", "127.0.0.2")], [("10.128.0.2", "ada")])
KEY, OTHER = ("j", 0, 1), ("j", 1, 1)


class FakeKernel:
    """Notes what it is asked for."""

    links, vxlan, table = "phxt", "phxv", "phalanx_x"

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.left: dict[str, str] = {}
        self.error: OSError | None = None

    def is_open(self) -> bool:
        return True

    def open(self, block: str, local: str, *, encrypted: bool) -> None:
        if self.error is not None:
            raise self.error
        self.asked.append(f"open {block} {local}{' encrypted' if encrypted else ''}")

    def reach(self, block: str, peers: Iterable[OverlayPeer]) -> None:
        self.asked.append(f"reach {[tuple(filter(None, each)) for each in peers]}")

    def add(self, key: str, address: str, block: str) -> str:
        self.left[key] = address
        return f"/run/netns/{key}"

    def remove(self, gone: Iterable[tuple[str, str]]) -> None:
        for key, _ in gone:
            self.left.pop(key, None)

    def found(self) -> dict[str, str]:
        return dict(self.left)

    def namespaces(self) -> list[str]:
        return list(self.left)

    def link_of(self, address: str) -> str:
        return f"phxt{address[-1]}"

    def set_rules(self, text: str) -> None:
        self.asked.append(f"rules for {text.count('add element inet phalanx_x source')}")

    def withdraw(self) -> None:
        self.asked.append("withdraw")


@pytest.fixture
def kernel() -> FakeKernel:
    return FakeKernel()


@pytest.fixture
def networks(kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskNetworks]:
    monkeypatch.setattr("phalanx.runner.overlay._traces", lambda mark: True)
    made = TaskNetworks(lambda: kernel, "x", lambda: "127.0.0.1")
    yield made
    made.close()


def test_the_map_is_followed_and_only_what_changed_is_done_again(networks: TaskNetworks, kernel: FakeKernel):
    assert networks.update(MAP) == ""
    assert kernel.asked == [
        "open 10.128.0.0/22 127.0.0.1", "reach [('10.128.4.0/22', '127.0.0.2')]", "rules for 1",
    ]  # fmt: skip
    kernel.asked.clear()
    networks.update(MAP)
    assert kernel.asked == []
    networks.update(structs.replace(MAP, owners=[("10.128.4.2", "ada")]))
    assert kernel.asked == ["rules for 0"], "that of another node has no link here"


def test_an_attempt_has_a_network_until_it_is_over(networks: TaskNetworks, kernel: FakeKernel):
    networks.update(MAP)
    assert networks.add(KEY, "10.128.0.2") == "/run/netns/j-0-1"
    assert kernel.left == {"j-0-1": "10.128.0.2"}
    networks.remove(KEY)
    networks.remove(KEY)
    networks.close()
    assert kernel.left == {}


def test_without_a_map_or_after_an_error_no_network_is_made(networks: TaskNetworks, kernel: FakeKernel):
    with pytest.raises(OSError, match="has not told"):
        networks.add(KEY, "10.128.0.2")
    kernel.error = OSError(95, "this kernel has no VXLAN")
    assert networks.update(MAP) == "overlay network: this kernel has no VXLAN"
    with pytest.raises(OSError, match="no VXLAN"):
        networks.add(KEY, "10.128.0.2")


def test_after_a_start_networks_of_live_attempts_stay_and_others_go(
    networks: TaskNetworks, kernel: FakeKernel
):
    kernel.left = {"j-0-1": "10.128.0.2", "j-1-1": "10.128.0.3"}
    networks.clean([KEY])
    assert kernel.left == {"j-0-1": "10.128.0.2"}
    networks.remove(KEY)
    networks.close()
    assert kernel.left == {}


def test_where_nothing_is_alive_everything_is_withdrawn(networks: TaskNetworks, kernel: FakeKernel):
    kernel.left = {"j-1-1": "10.128.0.3"}
    networks.clean([])
    assert (kernel.left, kernel.asked) == ({}, ["withdraw"])


def test_two_runners_of_one_machine_have_different_marks():
    assert mark_of("a") != mark_of("b")
    assert len(mark_of("a")) == 6


def test_an_attempt_that_ends_before_the_first_map_loses_its_network(
    networks: TaskNetworks, kernel: FakeKernel
):
    kernel.left = {"j-0-1": "10.128.0.2"}
    networks.clean([KEY])
    networks.remove(KEY)
    networks.close()
    assert kernel.left == {}


def test_a_peer_whose_name_cannot_be_resolved_keeps_nobody_from_the_others(
    networks: TaskNetworks, kernel: FakeKernel
):
    bad = ("10.128.8.0/22", "no-such-node.invalid")
    assert networks.update(structs.replace(MAP, peers=[*MAP.peers, bad])) == ""
    assert "reach [('10.128.4.0/22', '127.0.0.2')]" in kernel.asked
    assert networks.add(KEY, "10.128.0.2") == "/run/netns/j-0-1"


def test_a_subnet_that_would_hide_a_route_of_the_node_is_refused(
    networks: TaskNetworks, kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
):
    def refuse(subnet: str) -> None:
        raise ConfigError(f"overlay.subnet = {subnet!r}: it would hide this machine's route")

    monkeypatch.setattr("phalanx.runner.overlay.check_subnet", refuse)
    assert "would hide this machine's route" in networks.update(MAP)
    assert kernel.asked == [], "nothing half done"


@pytest.mark.parametrize("works", [True, False])
def test_a_runner_that_cannot_make_the_network_says_so_with_its_next_hello(
    networks: TaskNetworks, kernel: FakeKernel, works: bool
):
    engine = RunnerEngine("n1", "a", "o1", "token", Capacity(1, 1))
    engine.networks, engine.has_overlay = networks, True
    kernel.error = None if works else OSError(95, "this kernel has no VXLAN")
    engine.receive(MAP, 0.0)
    assert engine.hello(0.0).overlay == works
    if works:
        kernel.error = OSError(5, "later")
        engine.receive(structs.replace(MAP, block="10.128.4.0/22", peers=[]), 0.0)
        assert engine.hello(0.0).overlay, "an error that may pass is told with each attempt"
