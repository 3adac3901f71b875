"""What goes wrong with coordinators and with the etcd under them: death, pauses, second processes, partitions.

A leader is hit more often than a standby, because more depends on it. Faults of etcd do nothing in a run on another
store.
"""

from __future__ import annotations

from phalanx.sim.coordinator import SimulatedCoordinator
from phalanx.sim.harm import Harm

ETCD_ONLY = ("late-writes", "dead-member", "cut-off", "etcd-election")
RECENT = 8  # one of the newest so many batches is damaged: an image may cover older ones
SEVERAL_ONLY = ("standby-crash", "lonely-leader")  # they need another seat


def crash(harm: Harm, for_s: float) -> None:
    """The coordinator dies; its seat stays empty for a while."""
    if (leader := harm.leader()) is not None:
        harm.coordinators.leave_vacant(leader.seat, for_s)
        leader.end()


def blackout(harm: Harm, for_s: float) -> None:
    """The coordinator's machine loses its power: its connections stay open and are never answered."""
    if (leader := harm.leader()) is not None:
        harm.coordinators.leave_vacant(leader.seat, for_s)
        leader.vanish()


def usurper(harm: Harm, for_s: float) -> None:
    """The coordinator is paused, another takes over, and the old one resumes without knowing it."""
    if (leader := harm.leader()) is not None:
        leader.pause()
        harm.world.after(harm.dice.uniform(0.0, for_s), harm.coordinators.sit, leader.seat)
        harm.world.after(for_s, leader.resume)


def second_leader(harm: Harm, for_s: float) -> None:
    """A second process is started on the leader's seat while the first one is healthy."""
    if (leader := harm.leader()) is not None:
        harm.world.after(harm.dice.uniform(0.0, for_s), harm.coordinators.sit, leader.seat)


def stall(harm: Harm, for_s: float) -> None:
    """The coordinator hangs, and no other process is started on its seat."""
    if (leader := harm.leader()) is not None:
        leader.pause()
        harm.world.after(for_s, leader.resume)


def retirement(harm: Harm, for_s: float) -> None:
    """The leader gets SIGTERM: it answers what it has accepted, resigns and ends."""
    if (leader := harm.leader()) is not None:
        harm.coordinators.leave_vacant(leader.seat, for_s)
        leader.retire()


def standby_crash(harm: Harm, for_s: float) -> None:
    standbys = [each for each in harm.coordinators.alive() if not each.is_open]
    if standbys:
        one = harm.dice.choice(standbys)
        harm.coordinators.leave_vacant(one.seat, for_s)
        one.end()


def lonely_leader(harm: Harm, for_s: float) -> None:
    """No runner reaches the leader, and perhaps it does not reach its store either; then another should lead."""
    if (leader := harm.leader()) is None:
        return
    harm.network.isolate(leader.seat)
    harm.world.after(for_s, harm.network.rejoin, leader.seat)
    if harm.dice.random() < 0.5:
        _cut_off(harm, leader, for_s)


def damaged_record(harm: Harm, for_s: float) -> None:
    """A record of the log cannot be read, and all coordinators die: their successors must refuse to lead over the gap.

    After a while the operator restores it from a backup. A standby that has read the record before may lead meanwhile.
    """
    batches = harm.checkers.chronicle.batches[-RECENT:]
    if not batches:
        return
    revision = harm.dice.choice(batches).revision
    harm.vault.damaged.add(revision)
    harm.world.after(for_s, harm.vault.damaged.discard, revision)
    spared = harm.dice.choice([*harm.coordinators.alive(), None])
    for each in harm.coordinators.alive():
        if each is not spared:
            each.end()


def cut_off(harm: Harm, for_s: float) -> None:
    """A coordinator, mostly the leader, cannot reach etcd."""
    leader, alive = harm.leader(), harm.coordinators.alive()
    one = leader if leader is not None and harm.dice.random() < 0.7 else harm.dice.choice(alive or [None])
    if one is not None:
        _cut_off(harm, one, for_s)


def late_writes(harm: Harm, for_s: float) -> None:
    """Some requests to etcd are delayed, and take effect after their sender has given up."""
    _set_etcd(harm, for_s, "delays_requests")


def dead_member(harm: Harm, for_s: float) -> None:
    """One of three members of etcd answers nothing."""
    _set_etcd(harm, for_s, "has_dead_member")


def etcd_election(harm: Harm, for_s: float) -> None:
    """Etcd changes its leader several times; a coordinator that pauses meanwhile loses its lease late."""
    if harm.etcd() is None:
        return
    for _ in range(3):
        at = harm.dice.uniform(0.0, for_s)
        harm.world.after(at, setattr, harm.vault, "is_away", True)
        harm.world.after(min(for_s, at + harm.dice.uniform(0.2, 3.0)), setattr, harm.vault, "is_away", False)


def _cut_off(harm: Harm, one: SimulatedCoordinator, for_s: float) -> None:
    if (etcd := harm.etcd()) is not None:
        etcd.cut_off.add(one.seat)
        harm.world.after(for_s, etcd.cut_off.discard, one.seat)


def _set_etcd(harm: Harm, for_s: float, flag: str) -> None:
    if (etcd := harm.etcd()) is not None:
        setattr(etcd, flag, True)
        harm.world.after(for_s, setattr, etcd, flag, False)
