"""The simulator's keeper is the real table among modelled processes: what is modelled behaves as the machine would."""

from __future__ import annotations

import json
from typing import Any

import pytest

from phalanx.core.model.orders import AttemptKey, Start
from phalanx.core.model.resources import Grant
from phalanx.core.runner.attempts import ProcessEnd
from phalanx.sim.keeper import Keeper, KeeperDisk
from phalanx.sim.world import LocalClock, World

KEY, NEXT = ("g1", 0, 1), ("g1", 1, 1)
NAMES = {KEY: "g1/0/1/1", NEXT: "g1/1/1/1"}


class Runner:
    """The attached runner and the watcher of processes: it records what it receives."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.ran: list[AttemptKey] = []
        self.ended: list[AttemptKey] = []
        self.remembered: list[AttemptKey] = []
        self.is_connected = True

    def send(self, lines: list[str]) -> None:
        for word, key, *rest in map(json.loads, lines):
            how = {"refused": lambda rest: rest[0], "ended": lambda rest: f"ended {rest[0]['code']}"}
            self.heard.append(f"{key.split('/')[1]} {how.get(word, lambda rest, word=word: word)(rest)}")

    def hang_up(self) -> None:
        self.is_connected = False

    def process_ready(self, node: str, key: AttemptKey) -> None:
        """Recorded as well."""

    def process_started(self, node: str, start: Start) -> None:
        self.ran.append(start.key)

    def process_ended(self, node: str, key: AttemptKey, end: ProcessEnd) -> None:
        self.ended.append(key)

    def end_seen(self, node: str, key: AttemptKey, by_itself: bool) -> None:
        if by_itself:
            self.remembered.append(key)

    def keeper_stopped(self, node: str) -> None:
        """The test itself does this."""

    keeper_resumed = keeper_stopped

    def journal_lost(self, node: str) -> None:
        """Not in these tests."""


class Node:
    def __init__(self) -> None:
        self.world = World(1)
        self.runner = Runner()
        self.disk = KeeperDisk()
        clock = LocalClock(self.world, 0.0, 1.0)
        self.keeper = Keeper(self.world, "n1", clock, self.runner, self.disk)
        self.keeper.accept(self.runner)
        self.ask("lease", 60.0)

    def ask(self, *request: Any) -> None:
        self.keeper.call(self.keeper.received, [list(request)])

    def wait(self, seconds: float) -> list[str]:
        """What was received in that time."""
        self.runner.heard.clear()
        self.world.run(self.world.now + seconds)
        return list(self.runner.heard)

    def start(self, key: AttemptKey = KEY, *, held: bool = False, script: str = "run 5 0") -> None:
        self.disk.starts[key] = Start(key, 1, Grant(1, 0), None, 0)
        self.ask("brief", script, {"argv": script.split(), "env": {}})
        self.ask("start", NAMES[key], script, {"out": "", "err": "", "lane": 1, "held": held})


def test_a_member_runs_when_it_is_told_to_go_and_not_before():
    node = Node()
    node.start(held=True)
    assert node.wait(30.0) == ["0 ready"]
    assert node.runner.ran == []
    node.ask("go", NAMES[KEY])
    assert node.wait(6.0) == ["0 started", "0 ended 0"]
    assert node.runner.ran == node.runner.ended == node.runner.remembered == [KEY]


def test_what_does_not_exist_is_refused_and_its_lane_goes_on():
    node = Node()
    node.start(script="missing")
    node.start(NEXT)
    assert node.wait(1.0) == ["0 not_found", "1 started"]


def test_a_process_heeds_a_polite_signal_or_waits_for_the_other():
    for script, code, within_s in (("run 50 0", "ended None", 0.6), ("stubborn 50 0", "ended None", 5.1)):
        node = Node()
        node.start(script=script)
        node.wait(1.0)
        node.ask("stop", NAMES[KEY], 5.0)
        assert node.wait(within_s) == [f"0 {code}"]
        assert node.runner.remembered == []


def test_a_stopped_keeper_hears_and_sees_it_all_when_it_is_let_go_on():
    """Its processes go on without it: an end is an end, though the keeper has not seen it yet."""
    node = Node()
    node.start()
    node.wait(1.0)
    node.keeper.pause()
    node.start(NEXT)
    assert (node.wait(10.0), node.runner.ended, node.runner.remembered) == ([], [KEY], [])
    node.keeper.resume()
    assert node.wait(1.0) == ["0 ended 0", "1 started"]
    assert node.runner.remembered == [KEY]


def test_a_killed_keeper_leaves_its_processes_and_sees_no_end():
    node = Node()
    node.start()
    node.wait(1.0)
    node.keeper.end()
    assert not node.runner.is_connected
    assert (node.wait(10.0), node.runner.ended, node.runner.remembered) == ([], [KEY], [])
    assert [json.loads(line)[0] for line in node.disk.journal] == ["started"]


def test_the_lease_ends_by_itself():
    node = Node()
    node.start(script="run 100 0")
    node.start(NEXT)
    node.wait(59.0)
    assert node.wait(3.0) == ["0 ended None", "1 fenced"]


@pytest.mark.parametrize(("lease_s", "grace_s"), [(60.0, 2.0), (12.0, 2.0), (0.8, 0.2)])
def test_what_a_dead_keeper_ran_is_asked_to_end_with_the_lease_and_killed_after_the_grace(
    lease_s: float, grace_s: float
):
    node = Node()
    node.start(script="stubborn 100 0")
    node.ask("lease", lease_s)
    node.wait(0.1)
    node.keeper.end()
    node.wait(lease_s + grace_s - 0.1 - 0.01)
    assert node.runner.ended == []
    node.wait(0.02)
    assert node.runner.ended == [KEY]


def test_a_new_runner_hears_no_answer_to_what_another_one_asked():
    """The requests of a runner that is gone are carried out all the same, except its questions."""
    node = Node()
    node.wait(1.0)
    node.keeper.pause()
    node.ask("list")
    node.start()
    successor = Runner()
    node.keeper.call(node.keeper.accept, successor)
    node.keeper.resume()
    node.wait(1.0)
    assert (successor.heard, node.runner.ran) == (["0 started"], [KEY])
