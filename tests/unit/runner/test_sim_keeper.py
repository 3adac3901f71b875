"""The simulator's keeper owes its runner what the real one does: a member of a gang is held until it is told to go."""

from __future__ import annotations

from phalanx.core.model.job import Command
from phalanx.core.model.orders import AttemptKey, Brief, Start
from phalanx.core.model.resources import Grant
from phalanx.core.runner import Spawn
from phalanx.core.verdict import ProcessEnd
from phalanx.sim.keeper import Keeper
from phalanx.sim.world import LocalClock, World

KEY, NEXT = ("g1", 0, 1), ("g1", 1, 1)


class Runner:
    """Whoever is attached, and sees processes come and go: it writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.ran: list[AttemptKey] = []

    def ready(self, key: AttemptKey) -> None:
        self.heard.append(f"{key[1]} ready")

    def started(self, key: AttemptKey, at: float) -> None:
        self.heard.append(f"{key[1]} started")

    def refused(self, key: AttemptKey, code: str, message: str) -> None:
        self.heard.append(f"{key[1]} {code}")

    def ended(self, key: AttemptKey, end: ProcessEnd) -> None:
        self.heard.append(f"{key[1]} ended {end.reason or end.code}")

    def process_ready(self, node: str, key: AttemptKey) -> None:
        """Heard as well."""

    def process_started(self, node: str, start: Start) -> None:
        self.ran.append(start.key)

    def process_ended(self, node: str, key: AttemptKey, end: ProcessEnd, by_itself: bool) -> None:
        """Seen from outside as well."""

    def journal_lost(self, node: str) -> None:
        """Not in these stories."""


class Node:
    def __init__(self) -> None:
        self.world = World(1)
        self.runner = Runner()
        self.keeper = Keeper(self.world, "n1", LocalClock(self.world, 0.0, 1.0), self.runner)
        self.keeper.runner = self.runner
        self.keeper.lease(60.0)

    def wait(self, seconds: float) -> list[str]:
        """What was heard in that time."""
        self.runner.heard.clear()
        self.world.run(self.world.now + seconds)
        return list(self.runner.heard)

    def start(self, key: AttemptKey = KEY, *, held: bool = True, script: str = "run 5 0") -> None:
        brief = Brief("g1", 0, Command(tuple(script.split())), "", "default", "g1", 2, None, 5.0, None)
        self.keeper.start(Spawn(Start(key, 1, Grant(1, 0), None, 0, formation=1), brief, held=held))


def test_a_member_runs_when_it_is_told_to_go_and_not_before() -> None:
    node = Node()
    node.start()
    assert node.wait(30.0) == ["0 ready"]
    assert node.runner.ran == []
    node.keeper.go(KEY)
    node.keeper.go(KEY)
    assert node.wait(6.0) == ["0 started", "0 ended 0"]
    assert node.runner.ran == [KEY]


def test_a_second_start_tells_again_or_lets_it_go() -> None:
    node = Node()
    node.start()
    assert node.wait(1.0) == ["0 ready"]
    node.start()
    assert node.wait(1.0) == ["0 ready"]
    node.start(held=False)
    assert node.wait(1.0) == ["0 started"]


def test_what_could_not_start_is_refused_before_anybody_goes() -> None:
    node = Node()
    node.start(script="missing")
    assert node.wait(1.0) == ["0 not_found"]


def test_a_member_that_is_stopped_never_runs_and_its_lane_goes_on() -> None:
    node = Node()
    node.start()
    node.start(NEXT, held=False)
    node.keeper.retract(KEY)
    assert node.wait(1.0) == ["0 ready"]
    node.keeper.stop(KEY, 5.0)
    node.keeper.go(KEY)
    assert node.wait(1.0) == ["0 stopped", "1 started"]
    assert node.runner.ran == [NEXT]


def test_a_member_waits_for_its_lane_and_is_not_retracted() -> None:
    node = Node()
    node.start(NEXT, held=False)
    node.start()
    node.keeper.retract(KEY)
    assert node.wait(6.0) == ["1 started", "1 ended 0", "0 ready"]


def test_the_lease_runs_out_at_the_barrier() -> None:
    node = Node()
    node.start()
    node.start(NEXT)
    assert node.wait(61.0) == ["0 ready", "0 fenced", "1 fenced"]
    node.keeper.lease(60.0)
    node.keeper.go(KEY)
    assert node.wait(1.0) == []


def test_a_machine_that_loses_its_power_forgets_who_was_held() -> None:
    node = Node()
    node.start()
    node.keeper.lose_power()
    assert (node.keeper.held, node.wait(1.0)) == ({}, [])
