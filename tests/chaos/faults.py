"""What can go wrong, by name: each fault has a victim, a beginning, an end, and rules for how many at once.

The kinds stand in a table with their weights. A fault's `begin` does it and returns what undoes it. Who decides when
is `storm.py`.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.chaos.cluster import Cluster
from tests.chaos.network import RIG

Undo = Callable[[], None]
MAJORITY_S_MAX = 4.0


@dataclass
class Fault:
    """One thing that went wrong, for a while."""

    kind: str
    victims: tuple[str, ...]
    began_at: float
    lasts_s: float
    ended_at: float | None = None

    def touches(self, name: str, since: float, until: float) -> bool:
        """Whether it was felt by `name` at some moment between two instants."""
        return name in self.victims and self.began_at <= until and (self.ended_at or until) >= since


class Harm:
    """The hands that do it."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._network = cluster.network
        self._cuts: Counter[tuple[str, str]] = Counter()  # two faults may cut the same pair

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
        node.crash()
        return lambda: None if node.is_running else node.start()

    def pause_keeper(self, name: str) -> Undo:
        node = self._cluster.nodes[name]
        node.signal_keeper(signal.SIGSTOP)
        return lambda: node.signal_keeper(signal.SIGCONT)

    def freeze(self, name: str) -> Undo:
        """Runner and keeper stand still and their tasks run on: nobody is there to fence them."""
        runner, keeper = self.pause(name), self.pause_keeper(name)

        def undo() -> None:
            keeper()
            runner()

        return undo

    def kill_keeper(self, name: str) -> Undo:
        self._cluster.nodes[name].signal_keeper(signal.SIGKILL)
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


@dataclass(frozen=True)
class Kind:
    """`victims` is the letter of those it may befall, `count` how many of them at once, `longest` in seconds."""

    weight: float
    victims: str
    begin: Callable[[Harm, tuple[str, ...]], Undo]
    shortest_s: float
    longest_s: Callable[[Cluster], float]
    count: int = 1
    needs_etcd: bool = False


def _lease(times: float) -> Callable[[Cluster], float]:
    return lambda cluster: times * cluster.shape.lease_s


def _loss(times: float) -> Callable[[Cluster], float]:
    return lambda cluster: times * cluster.shape.lost_after_s


def _seconds(seconds: float) -> Callable[[Cluster], float]:
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
    "node crashed": Kind(3, "n", lambda harm, who: harm.crash(who[0]), 0.0, _seconds(6)),
    "keeper killed": Kind(2, "n", lambda harm, who: harm.kill_keeper(who[0]), 0.0, _seconds(1)),
    "keeper paused": Kind(1, "n", lambda harm, who: harm.pause_keeper(who[0]), 0.2, _loss(1.8)),
    "node frozen": Kind(2, "n", lambda harm, who: harm.freeze(who[0]), 0.5, _loss(2)),
}

# Nobody can stop the tasks of a node whose keeper stands still: two attempts of one may live then.
UNFENCED = ("keeper paused", "node frozen")

# How many of each sort may be in trouble at the same moment; the rest must be enough to go on.
AT_ONCE = {"c": 2, "e": 1, "n": 3}


def choose(
    chance: Random, cluster: Cluster, troubled: set[str], leader: str | None, kinds: tuple[str, ...] = ()
) -> tuple[str, Fault] | None:
    """A kind and its victims, by weight, or None if nobody may be harmed in that way just now."""
    there = {name[0] for name in cluster.parts}
    possible = [
        name
        for name, kind in KINDS.items()
        if (not kinds or name in kinds) and kind.victims in there and (cluster.members or not kind.needs_etcd)
    ]
    name = chance.choices(possible, [KINDS[each].weight for each in possible])[0]
    kind = KINDS[name]
    sort = [each for each in cluster.parts if each[0] == kind.victims]
    well = [each for each in sort if each not in troubled]
    if len(sort) - len(well) >= AT_ONCE[kind.victims] or len(well) < kind.count:
        return None
    if kind.count > 1 and len(well) < len(sort):
        return None
    if leader in well and chance.random() < 0.6:
        victims: tuple[str, ...] = (leader,)
    else:
        victims = tuple(chance.sample(well, kind.count))
    longest_s = kind.longest_s(cluster)
    lasts_s = chance.uniform(kind.shortest_s, longest_s if chance.random() < 0.5 else longest_s / 3)
    return name, Fault(name, victims, 0.0, max(kind.shortest_s, lasts_s))
