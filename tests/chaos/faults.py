"""What can go wrong, by name: each fault has a victim, a beginning, an end, and rules for how many at once.

The kinds are in a table with their weights. A fault's `begin` does it and returns what undoes it. `storm.py` decides
when.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.chaos.chaos_cluster import ChaosCluster
from tests.chaos.network import RIG

Undo = Callable[[], None]
MAJORITY_S_MAX = 4.0


@dataclass
class Fault:
    """One fault, for a while."""

    kind: str
    victims: tuple[str, ...]
    began_at: float
    lasts_s: float
    ended_at: float | None = None
    is_idle: bool = False  # there was no keeper to harm

    def touches(self, name: str, since: float, until: float) -> bool:
        """Whether it affected `name` at some moment between two instants."""
        return name in self.victims and self.began_at <= until and (self.ended_at or until) >= since


class Harm:
    """Carries faults out and undoes them."""

    def __init__(self, cluster: ChaosCluster) -> None:
        self._cluster = cluster
        self._network = cluster.network
        self._cuts: Counter[tuple[str, str]] = Counter()  # two faults may cut the same pair
        self.missed = False  # whether a keeper was looked for and not found

    def kill(self, name: str) -> Undo:
        part = self._cluster.parts[name]
        part.kill()
        return lambda: None if part.is_running else part.start()

    def pause(self, *names: str) -> Undo:
        for name in names:
            self._cluster.parts[name].pause()

        def undo() -> None:
            for name in names:
                self._cluster.parts[name].resume()

        return undo

    def crash(self, name: str) -> Undo:
        node = self._cluster.nodes[name]
        self.missed |= not node.crash()
        return lambda: None if node.is_running else node.start()

    def pause_keeper(self, name: str) -> Undo:
        node = self._cluster.nodes[name]
        self.missed |= not node.signal_keeper(signal.SIGSTOP)

        def undo() -> None:
            node.signal_keeper(signal.SIGCONT)

        return undo

    def freeze(self, name: str) -> Undo:
        """Runner and keeper are stopped and their tasks run on: the watchdog has to end them."""
        runner, keeper = self.pause(name), self.pause_keeper(name)
        return _all(keeper, runner)

    def freeze_watchdog(self, name: str) -> Undo:
        """Runner, keeper and watchdog are stopped and their tasks run on: nothing is left to end them."""
        node = self._cluster.nodes[name]
        rest = self.freeze(name)
        node.signal_watchdogs(signal.SIGSTOP)
        return _all(lambda: node.signal_watchdogs(signal.SIGCONT), rest)

    def stop_machine(self, name: str) -> Undo:
        """Everything of a node is stopped, its tasks, too: a virtual machine that is paused, and resumes later."""
        node = self._cluster.nodes[name]
        rest = self.freeze_watchdog(name)
        node.signal_tasks(signal.SIGSTOP)
        return _all(lambda: node.signal_tasks(signal.SIGCONT), rest)

    def abandon(self, name: str) -> Undo:
        """Runner and keeper are killed, and not started again for a long time."""
        node = self._cluster.nodes[name]
        self.missed |= not node.abandon()
        return lambda: None if node.is_running else node.start()

    def set_clock(self, name: str, seconds: int) -> Undo:
        """A node's wall clock jumps, and jumps back later."""
        clock = self._cluster.clocks[name]
        clock.set_by(seconds)
        return lambda: clock.set_by(0)

    def kill_keeper(self, name: str) -> Undo:
        self.missed |= not self._cluster.nodes[name].signal_keeper(signal.SIGKILL)
        return lambda: None

    def cut(self, *pairs: tuple[str, str]) -> Undo:
        """Each pair is a direction: what the first sends to the second is lost."""
        for pair in pairs:
            self._cuts[pair] += 1
            if self._cuts[pair] == 1:
                self._network.cut(*pair)

        def undo() -> None:
            for pair in pairs:
                self._cuts[pair] -= 1
                if not self._cuts[pair]:
                    self._network.heal(*pair)

        return undo

    def part(self, name: str, others: list[str]) -> Undo:
        """Both directions between one and each of the others."""
        return self.cut(*((name, other) for other in others), *((other, name) for other in others))

    def everybody_but(self, name: str) -> list[str]:
        return [RIG, *(each for each in self._cluster.parts if each != name)]

    def members(self) -> list[str]:
        return [*self._cluster.members]

    def nodes(self) -> list[str]:
        return [*self._cluster.nodes]


def _all(*undos: Undo) -> Undo:
    def undo() -> None:
        for each in undos:
            each()

    return undo


@dataclass(frozen=True)
class Kind:
    """`victims` is the letter of the parts it may hit, `count` how many of them at once, `longest` in seconds."""

    weight: float
    victims: str
    begin: Callable[[Harm, tuple[str, ...]], Undo]
    shortest_s: float
    longest_s: Callable[[ChaosCluster], float]
    count: int = 1
    needs_etcd: bool = False
    losses: float = 0.0  # it lasts at least so many times `lost_after_s`
    needs_clocks: bool = False
    hits_keeper: bool = False


def _lease(times: float) -> Callable[[ChaosCluster], float]:
    return lambda cluster: times * cluster.shape.lease_s


def _loss(times: float) -> Callable[[ChaosCluster], float]:
    return lambda cluster: times * cluster.shape.lost_after_s


def _seconds(seconds: float) -> Callable[[ChaosCluster], float]:
    return lambda cluster: seconds


KINDS: dict[str, Kind] = {
    "coordinator killed": Kind(5, "c", lambda harm, who: harm.kill(who[0]), 0.0, _seconds(4)),
    "coordinator paused": Kind(4, "c", lambda harm, who: harm.pause(who[0]), 0.2, _lease(2.5)),
    "coordinator away": Kind(
        2, "c", lambda harm, who: harm.part(who[0], harm.everybody_but(who[0])), 0.5, _lease(2.5)
    ),
    "coordinator cut from etcd": Kind(
        2, "c", lambda harm, who: harm.part(who[0], harm.members()), 0.5, _lease(2.5), needs_etcd=True
    ),
    "coordinator cut from runners": Kind(
        2, "c", lambda harm, who: harm.part(who[0], harm.nodes()), 0.5, _loss(0.9)
    ),
    "coordinator deaf": Kind(
        1, "c", lambda harm, who: harm.cut(*((o, who[0]) for o in harm.everybody_but(who[0]))), 0.5, _lease(2)
    ),
    "coordinator mute": Kind(
        1, "c", lambda harm, who: harm.cut(*((who[0], o) for o in harm.everybody_but(who[0]))), 0.5, _lease(2)
    ),
    "etcd member killed": Kind(3, "e", lambda harm, who: harm.kill(who[0]), 0.0, _seconds(5)),
    "etcd member paused": Kind(2, "e", lambda harm, who: harm.pause(who[0]), 0.2, _seconds(6)),
    "etcd member away": Kind(
        2, "e", lambda harm, who: harm.part(who[0], harm.everybody_but(who[0])), 0.5, _seconds(6)
    ),
    "etcd member mute": Kind(
        1,
        "e",
        lambda harm, who: harm.cut(*((who[0], o) for o in harm.everybody_but(who[0]))),
        0.5,
        _seconds(5),
    ),
    "etcd majority paused": Kind(
        1, "e", lambda harm, who: harm.pause(*who), 0.5, _seconds(MAJORITY_S_MAX), count=2
    ),
    "runner killed": Kind(5, "n", lambda harm, who: harm.kill(who[0]), 0.0, _seconds(5)),
    "runner paused": Kind(3, "n", lambda harm, who: harm.pause(who[0]), 0.2, _loss(1.5)),
    "node away": Kind(
        4, "n", lambda harm, who: harm.part(who[0], harm.everybody_but(who[0])), 0.5, _loss(1.7)
    ),
    "node mute": Kind(
        1,
        "n",
        lambda harm, who: harm.cut(*((who[0], o) for o in harm.everybody_but(who[0]))),
        0.5,
        _loss(1.5),
    ),
    "node crashed": Kind(3, "n", lambda harm, who: harm.crash(who[0]), 0.0, _seconds(6), hits_keeper=True),
    "keeper killed": Kind(
        2, "n", lambda harm, who: harm.kill_keeper(who[0]), 0.0, _seconds(1), hits_keeper=True
    ),
    "keeper paused": Kind(
        2, "n", lambda harm, who: harm.pause_keeper(who[0]), 0.2, _seconds(4), hits_keeper=True
    ),
    "keeper paused for long": Kind(
        2, "n", lambda harm, who: harm.pause_keeper(who[0]), 0.0, _loss(1.9), losses=1.2, hits_keeper=True
    ),
    "node frozen": Kind(3, "n", lambda harm, who: harm.freeze(who[0]), 0.5, _loss(2), hits_keeper=True),
    "node abandoned": Kind(
        3, "n", lambda harm, who: harm.abandon(who[0]), 0.0, _loss(2.5), losses=1.5, hits_keeper=True
    ),
    "node and watchdog frozen": Kind(
        0.5, "n", lambda harm, who: harm.freeze_watchdog(who[0]), 0.5, _loss(1.6), hits_keeper=True
    ),
    "machine stopped": Kind(
        1, "n", lambda harm, who: harm.stop_machine(who[0]), 0.5, _loss(1.8), hits_keeper=True
    ),
    "clock set ahead": Kind(
        1.5, "n", lambda harm, who: harm.set_clock(who[0], 5 * 3600), 2.0, _loss(2), needs_clocks=True
    ),
    "clock set back": Kind(
        1.5, "n", lambda harm, who: harm.set_clock(who[0], -7 * 3600), 2.0, _loss(2), needs_clocks=True
    ),
}

# What docs/promises.md admits: nothing is left on the node to end its tasks, or the whole of it is stopped.
UNFENCED = ("node and watchdog frozen", "machine stopped")
# No heartbeat passes: a node that stops during one of these is lost sooner. Victims are coordinators, or the node.
SILENT = (
    "coordinator killed", "coordinator paused", "coordinator away", "coordinator cut from etcd",
    "coordinator cut from runners", "node away", "node mute", "runner paused", "runner killed",
)  # fmt: skip
# The node receives nothing from the coordinator: its tasks end with its lease, whatever of it still runs.
OUT_OF_TOUCH = ("runner paused", "node away", "node frozen", "node abandoned")
# The part that notices ends of attempts is stopped or gone: ends are noticed later than they happen.
_KEEPERS = ("keeper killed", "keeper paused", "keeper paused for long")
NOT_WATCHED = (*_KEEPERS, "node frozen", "node abandoned", "node crashed", *UNFENCED)
CLOCKS = ("clock set ahead", "clock set back")

# How many parts of each sort may be harmed at the same moment; the others must be enough to go on.
AT_ONCE = {"c": 2, "e": 1, "n": 3}


def choose(
    chance: Random, cluster: ChaosCluster, troubled: set[str], leader: str | None, kinds: tuple[str, ...] = ()
) -> tuple[str, Fault] | None:
    """A kind and its victims, by weight, or None if no part may be harmed in that way now."""
    there = {name[0] for name in cluster.parts}
    possible = [
        name
        for name, kind in KINDS.items()
        if (not kinds or name in kinds)
        and kind.victims in there
        and (cluster.members or not kind.needs_etcd)
        and (cluster.clocks or not kind.needs_clocks)
    ]
    if not possible:
        return None
    name = chance.choices(possible, [KINDS[each].weight for each in possible])[0]
    kind = KINDS[name]
    sort = [each for each in cluster.parts if each[0] == kind.victims]
    well = [each for each in sort if each not in troubled]
    if len(sort) - len(well) >= AT_ONCE[kind.victims] or len(well) < kind.count:
        return None
    if kind.count > 1 and len(well) < len(sort):
        return None
    if (
        kind.hits_keeper
    ):  # a node whose runner has just begun has none yet; if none is found at all, the verdict says so
        well = [each for each in well if cluster.nodes[each].keepers()] or well
    if leader in well and chance.random() < 0.6:
        victims: tuple[str, ...] = (leader,)
    else:
        victims = tuple(chance.sample(well, kind.count))
    longest_s = kind.longest_s(cluster)
    shortest_s = max(kind.shortest_s, kind.losses * cluster.shape.lost_after_s)
    lasts_s = chance.uniform(shortest_s, longest_s if chance.random() < 0.5 else longest_s / 3)
    return name, Fault(name, victims, 0.0, max(shortest_s, lasts_s))
