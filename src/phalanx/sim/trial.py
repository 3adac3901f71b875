"""One run of the whole cluster from one seed: set up, inject faults, let it heal, and judge."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

from msgspec import Struct

from phalanx.coordinator.leadership import LeadershipConfig
from phalanx.coordinator.loop import Retention
from phalanx.core.cluster.state import Timers
from phalanx.core.model.plan import Backfill, Policy
from phalanx.core.model.resources import Capacity
from phalanx.core.model.score import SCORES
from phalanx.errors import PhalanxError
from phalanx.sim.checkers import Checkers, why_not_healed
from phalanx.sim.coordinator import SimulatedCoordinator
from phalanx.sim.coordinators import SimulatedCoordinators
from phalanx.sim.disk import Disk
from phalanx.sim.etcd_vault import EtcdVault
from phalanx.sim.faults import FAULTS, possible, schedule, unleash
from phalanx.sim.harm import Harm
from phalanx.sim.life import Life
from phalanx.sim.network import Network
from phalanx.sim.node import Node
from phalanx.sim.users import Users
from phalanx.sim.vault import Vault
from phalanx.sim.violation import Violation
from phalanx.sim.watched import Trap, Watched
from phalanx.sim.workload import a_capacity, some_elastic_rules
from phalanx.sim.workload_overlay import some_overlay_rules
from phalanx.sim.workload_sweep import SweepingUsers
from phalanx.sim.workload_workflow import some_dispatch_policy
from phalanx.sim.world import BEGINNING_S, LocalClock, World
from phalanx.store.protocol import StoreError

HEALS_WITHIN_S = 120.0
HEALS_STEP_S = 60.0  # after the last start of an attempt: getting an image ready takes that long
HEALS_MOST_S = 600.0
LEADER_WITHIN_S = 4.0  # plus a lease, after etcd and the last coordinator are back
DRIFT_MAX = 0.01
STUCK_AFTER_S = 45.0  # must be more than twice T_self; shorter than the default finds more
BACKFILLS: tuple[Backfill, ...] = ("easy", "easy", "easy", "none")
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - a store that need not outlive the run is quickest there
# An error that the code under test raises by mistake is a finding, reported with its seed.
_MISTAKES = (
    ArithmeticError,
    AttributeError,
    LookupError,
    OSError,
    PhalanxError,
    RuntimeError,
    StoreError,
    TypeError,
    ValueError,
)


class Mode(Struct, frozen=True):
    """The kind of store, and the number of coordinators."""

    store: str
    seats: int


MODES = (Mode("memory", 1), Mode("etcd", 3), Mode("sqlite", 1), Mode("etcd", 3), Mode("etcd", 1))


def etcd_seeds(seats: int = 3) -> Iterator[int]:
    """The seeds whose runs use a modelled etcd with this many seats, without end."""
    return (seed for seed in count() if MODES[seed % len(MODES)] == Mode("etcd", seats))


class Result(Struct):
    """The outcome of one seed."""

    seed: int
    trace_hash: str
    virtual_s: float
    counts: Counter[str]
    checker: str = ""
    sentence: str = ""
    tail: list[str] = []

    @property
    def is_good(self) -> bool:
        return not self.checker


def run(seed: int, faults: list[str] | None = None, listener: Callable[[str], None] | None = None) -> Result:
    """One trial, from the first random number to the verdict."""
    _silence_logs()
    world = World(seed, listener)
    mode = MODES[seed % len(MODES)]
    folder = _folder(mode)
    trial = Trial(world, mode, folder, list(FAULTS) if faults is None else faults)
    checker, sentence = "", ""
    try:
        trial.play()
    except Violation as broken:
        checker, sentence = broken.checker, broken.sentence
    except AssertionError as broken:
        checker, sentence = "assertion", f"{type(broken).__name__}: {broken}"
    except _MISTAKES as mistake:
        checker, sentence = "mistake", f"{type(mistake).__name__}: {mistake}"
    finally:
        trial.close()
        if folder is not None:
            shutil.rmtree(folder)
    if checker:
        world.trace(f"{checker}: {sentence}")
    virtual_s = world.now - BEGINNING_S
    return Result(seed, world.trace_hash, virtual_s, trial.counts(), checker, sentence, list(world.tail))


class Trial:
    """The parts of one run, wired together."""

    def __init__(self, world: World, mode: Mode, folder: Path | None, faults: list[str]) -> None:
        dice = world.dice("trial")
        self.world = world
        self.busy_s = dice.uniform(90.0, 200.0)
        self._clocks = world.dice("clocks")
        capacities = {f"n{number}": a_capacity(dice) for number in range(1, dice.randint(2, 4) + 1)}
        self.checkers = Checkers(world, capacities)
        self.network = Network(world, self.checkers)
        self.vault: Vault
        if mode.store == "etcd":
            self.vault = EtcdVault(world, self.checkers)
        else:
            self.vault = Disk(world, self.checkers, folder)
        self.checkers.outside = self.vault.outside
        self._trap = Trap()
        self._lease_s = dice.choice((2.0, 6.0))
        self._rules = Timers(
            ended_jobs_max=dice.choice((3, 10, 1000)),
            promise_s=dice.choice((2.0, 10.0, 60.0)),
            aging_s=dice.choice((0.0, 0.0, 10.0)),
            breaker_failures=dice.choice((0, 0, 3, 5)),
            breaker_pause_s=dice.choice((0.5, 1.5)),
            brake_nodes_min=dice.choice((2, 5)),
            stuck_after_s=STUCK_AFTER_S,
            elastic=some_elastic_rules(world.dice("elastic rules")),
            dispatch=some_dispatch_policy(world.dice("dispatch")),
            overlay=some_overlay_rules(world.dice("overlay")),
        )
        self.checkers.addresses.rules = self._rules.overlay
        self.checkers.elastic.rules = self._rules.elastic
        self._policy = Policy(
            score=world.dice("score").choice(SCORES),
            prefetch_s=dice.choice((0.1, 1.0, 4.0)),
            prefetch_max=dice.choice((2, 16)),
            backfill=dice.choice(BACKFILLS),
            assumed_run_s=dice.choice((10.0, 86_400.0)),
        )
        self._keep = Retention(
            events=world.dice("pruning").choice((30, 300, 1_000_000)),
            every=dice.choice((20, 60, 200, 100_000)),
        )
        self.checkers.keeps_stories = self._keep.events == 1_000_000
        seats = [f"s{number}" for number in range(1, mode.seats + 1)]
        self.coordinators = SimulatedCoordinators(world, seats, self._a_coordinator)
        self.network.listener = self.coordinators.at
        self._addresses = [f"{seat}:7434" for seat in seats]
        self.nodes = [self._a_node(name, capacity) for name, capacity in capacities.items()]
        self.users = Users(world, self.coordinators, self.network, self.checkers, capacities)
        self.users.has_overlay = self._rules.overlay.is_on
        self._submissions = dice.randint(10, 24)
        self._planned = schedule(dice, possible(faults, mode.store == "etcd", mode.seats), self.busy_s)

    def play(self) -> None:
        """The busy time with its faults, then quiet until everything has ended."""
        self.coordinators.begin()
        self.users.begin(self._submissions, self.busy_s)
        SweepingUsers(self.world, self.users, self.coordinators).begin(self.busy_s)
        harm = Harm(
            self.world, self.coordinators, self.vault, self._trap, self.network, self.nodes, self.checkers
        )
        unleash(harm, self._planned)
        self.world.run(BEGINNING_S + self.busy_s)
        self._wake_everyone()
        self.world.trace("-- no more faults")
        self.users.settle_down()
        leader = self._heal()
        self.checkers.finish(leader)
        state = leader.state
        self.world.trace(
            f"-- all is done at revision {state.revision} of epoch {state.epoch}: {state.counts}"
        )

    def close(self) -> None:
        for coordinator in self.coordinators.processes:
            coordinator.events.abandon()
        for node in self.nodes:
            node.close()
        self.vault.close()

    def counts(self) -> Counter[str]:
        counts = Counter(self.checkers.counts)
        counts["epochs"] = self.checkers.chronicle.epoch
        counts["tasks"] = sum(map(len, self.checkers.chronicle.jobs.values()))
        return counts

    def _heal(self) -> SimulatedCoordinator:
        """Let time pass until nothing is left to do; it must not take long.

        It may take longer where tasks go on one after another: addresses rest, and images are got ready.
        """
        began = self.world.now
        led_by = began + self._lease_s + LEADER_WITHIN_S
        while (why := self._unhealed()) is not None:
            deadline = min(
                max(began + HEALS_WITHIN_S, self.checkers.started_at + HEALS_STEP_S), began + HEALS_MOST_S
            )
            if self.world.now >= deadline:
                raise Violation("heals", f"{self.world.now - began:.0f} s after the last fault {why}")
            if self.world.now >= led_by and not self._is_led():
                raise Violation(
                    "leader", f"no coordinator leads, {LEADER_WITHIN_S:g} s and a lease after the last fault"
                )
            self.world.run(self.world.now + 1.0)
        leader = self.coordinators.leader()
        assert leader is not None
        return leader

    def _is_led(self) -> bool:
        leader = self.coordinators.leader()
        return leader is not None and leader.state.epoch == self.checkers.chronicle.epoch

    def _unhealed(self) -> str | None:
        leader = self.coordinators.leader()
        if leader is None:
            return "no coordinator leads"
        if leader.state.epoch != self.checkers.chronicle.epoch:
            return f"{leader.name} has been replaced and has not noticed"
        if self.users.unanswered:
            return f"{self.users.unanswered} submissions are not answered"
        if waiting := [node.name for node in self.nodes if node.runner.engine.state.outbox]:
            return f"{waiting[0]} still has reports that no coordinator has acknowledged"
        return why_not_healed(leader, self.checkers.floor, len(self.nodes))

    def _wake_everyone(self) -> None:
        """No fault outlasts the busy time."""
        for coordinator in self.coordinators.alive():
            coordinator.resume()
        for node in self.nodes:
            node.wake()

    def _a_coordinator(self, name: str, seat: str) -> SimulatedCoordinator:
        def open_store(owner: Life) -> Watched:
            return Watched(self.vault, owner, seat, self._trap, self.checkers)

        clock = self._a_clock(2.0)
        return SimulatedCoordinator(
            self.world,
            name,
            seat,
            open_store,
            self.checkers,
            clock,
            LeadershipConfig(self._rules, self._lease_s, self._policy, self._keep),
        )

    def _a_node(self, name: str, capacity: Capacity) -> Node:
        clock = self._a_clock(1000.0)
        return Node(self.world, name, capacity, clock, self.network, self._addresses, self.checkers)

    def _a_clock(self, offset_max_s: float) -> LocalClock:
        offset_s = self._clocks.uniform(-offset_max_s, offset_max_s)
        return LocalClock(self.world, offset_s, 1.0 + self._clocks.uniform(-DRIFT_MAX, DRIFT_MAX))


def _silence_logs() -> None:
    """Errors of a simulated process go to the trace and not to the log."""
    logging.getLogger("phalanx").setLevel(logging.CRITICAL)


def _folder(mode: Mode) -> Path | None:
    """A folder for the SQLite file, if this run uses one."""
    if mode.store != "sqlite":
        return None
    return Path(
        tempfile.mkdtemp(prefix="phalanx-sim-", dir=_SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None)
    )
