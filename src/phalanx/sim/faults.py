"""What goes wrong, and when: a schedule drawn from the seed that ends at a set time.

Each fault is a function that does harm at once and undoes it after its duration, so that the quiet time after
the last one is truly quiet.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from phalanx.core.cluster.events import RoomPromised
from phalanx.sim import faults_coordinators as on_coordinators
from phalanx.sim.checkers import ignore
from phalanx.sim.harm import Harm
from phalanx.sim.node import Node

Fault = Callable[[Harm, float], None]
# These excuse nothing else on the node: limits are kept and failures are reported meanwhile.
LONGEST = 3.0  # some faults last up to so many times their duration
CLOCK_ONLY, KEEPER_ONLY = ("clock-step",), ("stopped-keeper", "no-keeper")


def crash_before_append(harm: Harm, for_s: float) -> None:
    harm.trap.arm("before")
    harm.world.after(for_s, harm.trap.disarm)


def crash_after_append(harm: Harm, for_s: float) -> None:
    """The write takes effect and is never acknowledged."""
    harm.trap.arm("after")
    harm.world.after(for_s, harm.trap.disarm)


def crash_with_release(harm: Harm, for_s: float) -> None:
    """The coordinator dies with the write that releases, recalls or restarts a gang, before or after its effect."""
    _crash_with(harm, for_s, "GangReleased", "GangRecalled", "JobRestarted")


def crash_with_promise(harm: Harm, for_s: float) -> None:
    """The same with the write that evicts attempts, or that ends a promise."""
    _crash_with(harm, for_s, "RoomPromised", "PromiseWithdrawn", "TasksEvicted")


def death_at_barrier(harm: Harm, for_s: float) -> None:
    """A node loses its power, its runner or its keeper at the moment when a member of a gang is ready on it."""

    def strike(name: str) -> None:
        harm.checkers.on_ready = ignore
        node = _node(harm, name)
        harms = (node.crash_runner, node.crash_keeper, lambda back_s: node.reboot(back_s, True))
        harm.world.after(harm.dice.choice((0.0, 0.0, 0.02)), harm.dice.choice(harms), min(for_s, 2.0))

    harm.checkers.on_ready = strike
    harm.world.after(for_s, setattr, harm.checkers, "on_ready", ignore)


def trouble_at_promise(harm: Harm, for_s: float) -> None:
    """When attempts are evicted to make room, a node with promised places fails or is cut off."""

    def strike(event: RoomPromised) -> None:
        harm.checkers.on_promise = ignore
        name = harm.dice.choice([node for _, node, _ in event.members])
        if harm.dice.random() < 0.6:
            harm.network.block(name, "up", "down")
            harm.world.after(for_s, harm.network.heal, name, "up", "down")
        else:
            harm.world.after(0.0, _node(harm, name).reboot, min(for_s, 5.0), harm.dice.random() < 0.5)

    harm.checkers.on_promise = strike
    harm.world.after(for_s, setattr, harm.checkers, "on_promise", ignore)


def slow_disk(harm: Harm, for_s: float) -> None:
    _set_disk(harm, for_s, "is_slow")


def full_disk(harm: Harm, for_s: float) -> None:
    _set_disk(harm, for_s, "is_full")


def lost_disk(harm: Harm, for_s: float) -> None:
    _set_disk(harm, min(for_s, 15.0), "is_away")


def lost_commit(harm: Harm, for_s: float) -> None:
    """Writes take effect, and their coordinator gets an error."""
    _set_disk(harm, min(for_s, 2.0), "forgets_to_answer")


def partition(harm: Harm, for_s: float) -> None:
    _block(harm, for_s, "up", "down")


def deaf_coordinator(harm: Harm, for_s: float) -> None:
    """Messages of the runner are held back; messages to it arrive."""
    _block(harm, for_s, "up")


def deaf_runner(harm: Harm, for_s: float) -> None:
    _block(harm, for_s, "down")


def split(harm: Harm, for_s: float) -> None:
    """Every node but one is cut off at once."""
    for node in harm.nodes[1:]:
        harm.network.block(node.name, "up", "down")
        harm.world.after(for_s, harm.network.heal, node.name, "up", "down")


def silence(harm: Harm, for_s: float) -> None:
    """All nodes are cut off at once: more likely the coordinator is."""
    for node in harm.nodes:
        harm.network.block(node.name, "up", "down")
        harm.world.after(for_s, harm.network.heal, node.name, "up", "down")


def broken_connection(harm: Harm, for_s: float) -> None:
    """Connections break three times, at random moments."""
    for _ in range(3):
        node = harm.a_node().name
        harm.world.after(harm.dice.uniform(0.0, for_s), lambda node=node: harm.network.reset(node=node))


def storm(harm: Harm, for_s: float) -> None:
    """Delays up to two seconds, frames repeated, connections broken, requests and replies lost."""
    harm.network.is_stormy = True
    harm.world.after(for_s, setattr, harm.network, "is_stormy", False)


def late_orders(harm: Harm, for_s: float) -> None:
    """An order of an older coordinator reaches a runner that serves a newer one."""
    for node in harm.nodes:
        harm.world.after(harm.dice.uniform(0.0, for_s), _deliver_late, harm, node)


def runner_crash(harm: Harm, for_s: float) -> None:
    harm.a_node().crash_runner(min(for_s, 10.0))


def runner_pause(harm: Harm, for_s: float) -> None:
    """The runner hangs, perhaps past its lease; the keeper does not."""
    harm.a_node().pause_runner(for_s * harm.dice.choice((0.5, 1.0, 2.0)))


def keeper_crash(harm: Harm, for_s: float) -> None:
    harm.a_node().crash_keeper(min(for_s, 2.0))


def stopped_keeper(harm: Harm, for_s: float) -> None:
    """A keeper gets SIGSTOP, perhaps for longer than a lease lasts; its processes go on."""
    harm.a_node().pause_keeper(for_s * harm.dice.choice((0.3, 1.0, 3.0)))


def no_keeper(harm: Harm, for_s: float) -> None:
    """A keeper dies and cannot be started again for a while."""
    harm.a_node().lose_keeper(for_s)


def idle_runner(harm: Harm, for_s: float) -> None:
    """A runner accepts attempts that then never start; it lists them, or does not even know them."""
    harm.a_node().lose_starts(for_s, harm.dice.choice(("runner", "keeper")))


def clock_step(harm: Harm, for_s: float) -> None:
    """A node's wall clock is set, by seconds or by hours, and stays so."""
    by_s = harm.dice.choice((-1.0, 1.0)) * harm.dice.choice((30.0, 3600.0, 18_000.0))
    harm.world.after(harm.dice.uniform(0.0, for_s), harm.a_node().clock.step, by_s)


def reboot(harm: Harm, for_s: float) -> None:
    harm.a_node().reboot(for_s, harm.dice.random() < 0.5)


def relocation(harm: Harm, for_s: float) -> None:
    """A node is moved to another rack while it is off."""
    node = harm.a_node()
    node.move({**node.capacity.labels, "rack": harm.dice.choice(("r1", "r2", "r3"))})
    node.reboot(for_s, True)


def dying_node(harm: Harm, for_s: float) -> None:
    """A node is cut off a moment before it reboots."""
    node = harm.a_node()
    silent_s = min(for_s, harm.dice.uniform(0.2, 6.0))
    harm.network.block(node.name, "up")
    harm.world.after(silent_s, node.reboot, harm.dice.uniform(0.5, 5.0), harm.dice.random() < 0.3)
    harm.world.after(silent_s + 0.5, harm.network.heal, node.name, "up")


FAULTS: dict[str, Fault] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        on_coordinators.crash,
        on_coordinators.blackout,
        crash_before_append,
        crash_after_append,
        crash_with_release,
        crash_with_promise,
        death_at_barrier,
        trouble_at_promise,
        on_coordinators.usurper,
        on_coordinators.second_leader,
        on_coordinators.stall,
        on_coordinators.retirement,
        on_coordinators.standby_crash,
        on_coordinators.lonely_leader,
        on_coordinators.damaged_record,
        on_coordinators.cut_off,
        on_coordinators.late_writes,
        on_coordinators.dead_member,
        on_coordinators.etcd_election,
        slow_disk,
        full_disk,
        lost_disk,
        lost_commit,
        partition,
        deaf_coordinator,
        deaf_runner,
        split,
        silence,
        broken_connection,
        storm,
        late_orders,
        runner_crash,
        runner_pause,
        keeper_crash,
        stopped_keeper,
        no_keeper,
        idle_runner,
        clock_step,
        reboot,
        relocation,
        dying_node,
    )
}


def possible(names: list[str], is_etcd: bool, seats: int) -> list[str]:
    """The faults that can happen in a run of this kind."""
    never = (
        *(() if is_etcd else on_coordinators.ETCD_ONLY),
        *(() if seats > 1 else on_coordinators.SEVERAL_ONLY),
    )
    return [name for name in names if name not in never]


def schedule(dice: Random, names: list[str], until_s: float) -> list[tuple[float, str, float]]:
    """When, what and for how long; every fault is over at `until_s`, and none lasts for two whole leases."""
    planned = []
    for _ in range(dice.randint(5, 14) if names else 0):
        at = dice.uniform(3.0, until_s - 8.0)
        for_s = min(dice.choice((1.0, 4.0, 12.0, 25.0, 45.0)) * dice.uniform(0.5, 1.2), until_s - at)
        planned.append((at, dice.choice(names), for_s / 2 if for_s > 40.0 else for_s))
    return sorted(planned)


def unleash(harm: Harm, planned: list[tuple[float, str, float]]) -> None:
    for at, name, for_s in planned:
        harm.world.after(at, _strike, harm, name, for_s)


def _strike(harm: Harm, name: str, for_s: float) -> None:
    harm.world.trace(f"-- {name} for {for_s:.1f} s")
    harm.checkers.count(f"fault {name}")
    if name not in CLOCK_ONLY:
        harm.checkers.limits.excuse(LONGEST * for_s)
    if name not in (*CLOCK_ONLY, *KEEPER_ONLY):
        harm.checkers.standstill.excuse(LONGEST * for_s)
    FAULTS[name](harm, for_s)


def _node(harm: Harm, name: str) -> Node:
    return next(each for each in harm.nodes if each.name == name)


def _crash_with(harm: Harm, for_s: float, *events: str) -> None:
    harm.trap.arm(harm.dice.choice(("before", "after")), *events)
    harm.world.after(for_s, harm.trap.disarm)


def _deliver_late(harm: Harm, node: Node) -> None:
    harm.network.deliver_late(node.name, before=node.runner.engine.state.epoch)


def _set_disk(harm: Harm, for_s: float, flag: str) -> None:
    setattr(harm.vault, flag, True)
    harm.world.after(for_s, setattr, harm.vault, flag, False)


def _block(harm: Harm, for_s: float, *directions: str) -> None:
    node = harm.a_node()
    harm.network.block(node.name, *directions)
    harm.world.after(for_s, harm.network.heal, node.name, *directions)
