"""The cluster's laws, whatever happens to it: users, broken connections, dying runners, machines and coordinators."""

from __future__ import annotations

import sys
from itertools import count
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from phalanx.coordinator.metrics.recorder import Recorder
from phalanx.coordinator.restore import replay, restore
from phalanx.coordinator.turn import Turn
from phalanx.core.cluster.decision import Accepted, Disposed, Refused, Send
from phalanx.core.cluster.events import (
    AttemptEnded,
    BackoffsEnded,
    BrakeReleased,
    BrakeSet,
    NodeJoined,
    NodeLost,
    TaskPlaced,
)
from phalanx.core.cluster.image import ClusterImage, decode_job, encode_state
from phalanx.core.cluster.inputs import (
    Cancel,
    DeclareLost,
    Drain,
    Evict,
    RemoveNode,
    SetElastic,
    SetPaused,
    Submit,
    Tell,
    Undrain,
)
from phalanx.core.cluster.invariants import check
from phalanx.core.cluster.state import ClusterState, Timers
from phalanx.core.cluster.transitions import apply
from phalanx.core.cluster.units import GroupState
from phalanx.core.model.health import DeviceHealth, NodeHealth
from phalanx.core.model.job import Job, Restart, ulid
from phalanx.core.model.orders import AttemptKey, Disposition, Ended, Exit, Returned, Start, Status, Why
from phalanx.core.model.resources import Grant
from phalanx.store.protocol import LogHole
from tests.property.simulated_cluster import Machine, SimulatedCluster, loaded
from tests.property.strategies import HOSTS
from tests.support.builders import a_capacity, a_gang, a_group, a_job

FINALS = (Status.COMPLETED, Status.FAILED, Status.CANCELLED)
RULES = Timers(
    ended_jobs_max=2,
    loss_limit=3,
    pending_max=40,
    request_ids_max=3,
    breaker_failures=2,
    breaker_pause_s=20.0,
    brake_nodes_min=3,
    forget_after_s=60.0,
)
pick = st.integers(0, 1 << 16)
healths = st.sampled_from(
    (
        None,
        None,
        NodeHealth("disk"),
        NodeHealth("disk", evict=True),
        NodeHealth("", (DeviceHealth(0, "Xid"),)),
        NodeHealth("", (DeviceHealth(0, "Xid"), DeviceHealth(9, "lost")), True),
    )
)
rarely = st.sampled_from((False, False, False, True))
jobs = st.fixed_dictionaries(
    {
        "target": st.sampled_from((None, None, None, "n1", "n1:0", "n2::0", "n9")),
        "array": st.sampled_from((None, "1-9", "0-8:2%2", "1-20")),
        "cores": st.sampled_from((1, 1, 0, 2, 4)),
        "gpus": st.sampled_from((0, 0, 0, 1)),
        "priority": st.integers(0, 1),
        "max_retries": st.integers(0, 3),
        "time_limit_s": st.sampled_from((None, None, 5.0)),
    }
)

gangs = st.fixed_dictionaries(
    {
        "members": st.sampled_from(((2,), (3,), (4,), (1, 2))),
        "spare": st.sampled_from((0, 0, 1)),  # members that a gang can do without
        "cores": st.sampled_from((1, 1, 2)),
        "gpus": st.sampled_from((0, 0, 1)),
        "priority": st.integers(0, 2),
        "strict": st.sampled_from((True, True, False)),
        "match": st.sampled_from(("once-satisfied", "once-satisfied", "waiting-and-running")),
        "restart": st.sampled_from((Restart(whole=True, limit=2), Restart(whole=True, limit=2), Restart())),
        "wait_s": st.sampled_from((10.0, 60.0)),
    }
)


class ClusterLife(RuleBasedStateMachine):
    """Everything that may happen, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.world = SimulatedCluster(RULES)
        self.numbers = count(1)
        self.seen = 0  # turns already looked at
        self.finals: dict[tuple[str, int], int] = {}
        self.placed: dict[AttemptKey, str] = {}
        self.newest: dict[tuple[str, int], int] = {}
        self.ended: set[AttemptKey] = set()
        self.braked = False
        self.past: dict[str, list[int]] = {}  # tasks by status of jobs that left memory
        self.leases: dict[str, int] = {}  # the highest lease generation of each node so far

    @initialize(
        requests=st.lists(jobs, min_size=1, max_size=3), names=st.sampled_from((HOSTS, HOSTS[:2], HOSTS[:1]))
    )
    def a_cluster_with_some_work(self, requests: list[dict[str, object]], names: tuple[str, ...]) -> None:
        for name in names:
            self._join(name)
        self.world.turn(*(Submit(self._job(fields)) for fields in requests))

    # What users do.

    @rule(fields=jobs, no_queue=rarely, infeasible=rarely, twice=rarely)
    def submit(self, fields: dict[str, object], no_queue: bool, infeasible: bool, twice: bool) -> None:
        requests = [Submit(self._job(fields), "", infeasible, no_queue) for _ in range(1 + twice)]
        for answer in self.world.turn(*requests):
            assert isinstance(answer, Accepted | Refused)

    @rule(fields=gangs)
    def submit_a_gang(self, fields: dict[str, Any]) -> None:
        (answer,) = self.world.turn(Submit(self._gang(fields)))
        assert isinstance(answer, Accepted | Refused)

    @rule(which=pick, position=st.none() | st.integers(0, 4))
    def evict(self, which: int, position: int | None) -> None:
        job = self._some_job(which)
        if job is not None:
            self.world.turn(Evict(job.id, position if position is None or position < job.tasks else 0))

    @rule(which=pick, position=st.none() | st.integers(0, 4))
    def cancel(self, which: int, position: int | None) -> None:
        job = self._some_job(which)
        if job is not None:
            self.world.turn(Cancel(job.id, position if position is None or position < job.tasks else 0))

    @rule(which=pick, paused=st.booleans())
    def pause(self, which: int, paused: bool) -> None:
        if (job := self._some_job(which)) is not None:
            self.world.turn(SetPaused(job.id, which % job.tasks, paused))

    @rule(name=st.sampled_from(HOSTS), drained=st.booleans())
    def drain(self, name: str, drained: bool) -> None:
        self.world.turn(Drain(name, "test") if drained else Undrain(name))

    @rule(name=st.sampled_from(HOSTS), health=healths)
    def a_check_fails_or_passes(self, name: str, health: NodeHealth | None) -> None:
        """The next heartbeat or hello of its runner says so."""
        if (machine := self.world.machines.get(name)) is not None:
            machine.health = health

    @rule(name=st.sampled_from(HOSTS), enabled=st.booleans())
    def toggle(self, name: str, enabled: bool) -> None:
        self.world.turn(SetElastic(name, enabled, "test", "ann"))

    @rule(name=st.sampled_from(HOSTS), gone=st.booleans())
    def an_operator_says_that_a_node_is_gone(self, name: str, gone: bool) -> None:
        """The operator may be wrong; then it is refused."""
        (answer,) = self.world.turn(RemoveNode(name) if gone else DeclareLost(name, "no power"))
        assert isinstance(answer, Accepted | Refused)

    # What machines do.

    @rule(names=st.sampled_from((*((name,) for name in HOSTS), HOSTS, HOSTS)))
    def join_or_come_back(self, names: tuple[str, ...]) -> None:
        for name in names:
            if name not in self.world.machines:
                self._join(name)
            elif not self.world.machines[name].connected:
                self.world.machines[name].thaw(self.world.now)
                self.world.hello(self.world.machines[name])

    @rule(which=pick, code=st.sampled_from((0, 0, 0, 1)), at_once=st.booleans())
    def process_ends(self, which: int, code: int, at_once: bool) -> None:
        running = [(m, key) for m in self.world.machines.values() for key in m.keeper.running]
        if running:
            machine, key = running[which % len(running)]
            machine.keeper.announce(key, self.world.now)
            machine.keeper.end(key, self.world.now, code)
            if at_once and machine.connected:
                self.world.report(machine)

    @rule(told=st.booleans())
    def processes_start(self, told: bool) -> None:
        for machine in self.world.machines.values():
            for key in list(machine.keeper.running):
                machine.keeper.announce(key, self.world.now)
            if told and machine.connected:
                self.world.report(machine)

    @rule(which=pick, many=st.integers(1, 8), code=st.sampled_from((0, 0, 0, 1)))
    def short_tasks_end_one_after_another(self, which: int, many: int, code: int) -> None:
        machine = self._connected(which)
        for _ in range(many):
            if machine is not None and machine.keeper.running:
                machine.keeper.end(next(iter(machine.keeper.running)), self.world.now, code)
                self.world.report(machine)

    @rule(which=pick, noticed=st.booleans())
    def cut(self, which: int, noticed: bool) -> None:
        if (machine := self._connected(which)) is not None:
            self.world.cut(machine, noticed)

    @rule(name=st.sampled_from(HOSTS), crash=st.booleans(), back=st.booleans())
    def runner_or_machine_dies(self, name: str, crash: bool, back: bool) -> None:
        machine = self.world.machines.get(name)
        if machine is not None:
            machine.crash() if crash or machine.frozen else machine.restart_runner()
            if back:
                self.world.hello(machine)

    @rule(which=pick)
    def a_machine_hangs(self, which: int) -> None:
        """It sends nothing and stops nothing, past the end of its lease and longer."""
        if (machine := self._connected(which)) is not None:
            machine.frozen, machine.connected = True, False

    @precondition(lambda self: self.world.told)
    @rule(which=pick)
    def a_report_is_told_again(self, which: int) -> None:
        """Late or twice: it is distinguished from a true one and ends nothing."""
        tell = self.world.told[which % len(self.world.told)]
        node = self.world.state.nodes.get(tell.node)
        answer = self._refused(tell)
        if tell.epoch != self.world.state.epoch:
            assert answer == Disposition.STALE_EPOCH
        elif (
            node is None
            or node.lost
            or (node.incarnation, node.generation) != (tell.incarnation, tell.generation)
        ):
            assert answer == Disposition.STALE_LEASE

    @rule(which=pick, liar=st.sampled_from(HOSTS), returned=st.booleans())
    def a_node_reports_what_runs_elsewhere(self, which: int, liar: str, returned: bool) -> None:
        state = self.world.state
        live = [each for job in state.jobs.values() for each in job.live.values() if each.node != liar]
        if live and liar in state.nodes and not state.nodes[liar].lost:
            key = live[which % len(live)].key
            report = Returned(key) if returned else Ended(key, Exit(Why.NONE, 0))
            lease = state.nodes[liar].generation
            tell = Tell(liar, state.nodes[liar].incarnation, state.epoch, report, lease)
            assert self._refused(tell) == Disposition.STALE_ATTEMPT

    # What time and faults do.

    @rule(seconds=st.sampled_from((0.3, 1.0, 4.0, 11.0, 21.0, 31.0)))
    def time_passes_in_silence(self, seconds: float) -> None:
        self.world.wait(seconds)

    @rule(rounds=st.sampled_from((1, 2, 4, 20)))
    def time_passes_with_heartbeats(self, rounds: int) -> None:
        for _ in range(rounds):
            self.world.wait(5.0)
            for machine in list(self.world.machines.values()):
                if machine.connected:
                    self.world.beat(machine)

    @rule()
    def an_image_is_saved(self) -> None:
        self.world.take_image()

    @rule(fields=st.none() | jobs)
    def the_coordinator_is_replaced(self, fields: dict[str, object] | None) -> None:
        """It dies, perhaps after writing a job and before answering."""
        if fields is not None:
            self.world.decide(Submit(self._job(fields)))
        self._look()
        self.world.open_term()
        self.braked = False

    # The laws.

    @invariant()
    def what_must_always_hold_holds(self) -> None:
        assert check(self.world.state) == []
        assert self.world.state.skipped == 0

    @invariant()
    def an_attempt_is_placed_once_started_on_one_node_and_ended_once(self) -> None:
        self._look()

    @invariant()
    def a_final_status_never_changes(self) -> None:
        for id, job in self.world.state.jobs.items():
            for position, status in enumerate(job.status):
                if Status(status).is_final:
                    assert self.finals.setdefault((id, position), status) == status
                else:
                    assert (id, position) not in self.finals

    @invariant()
    def the_metrics_count_every_task_and_every_end_once(self) -> None:
        recorder, state = self.world.recorder, self.world.state
        for id in self.world.history.keys() - state.jobs.keys() - self.past.keys():
            self.past[id] = decode_job(self.world.history[id]).counts
        gone = [counts for id, counts in self.past.items() if id not in state.jobs]
        ends = [state.counts[status] + sum(counts[status] for counts in gone) for status in FINALS]
        assert [recorder.ended[status] for status in FINALS] == ends
        assert recorder.submitted == sum(state.counts) + sum(map(sum, gone))

    @invariant()
    def the_first_in_the_queue_never_waits_beside_free_room(self) -> None:
        """Others may, for what is reserved for the first. A gang needs more than free room on one node."""
        table = self.world.state.table
        ready = [unit for job in self.world.state.jobs.values() for unit in job.units if unit.has_ready]
        first = min(ready, key=lambda unit: unit.rank, default=None)
        if not isinstance(first, GroupState):
            return
        request = first.request
        rows = np.flatnonzero(table.slots(request).column > 0)
        assert not any(isinstance(table.ledgers[row].fit(request), Grant) for row in rows)

    @invariant()
    def nobody_of_a_gang_runs_before_all_are_in_place(self) -> None:
        """When the first of a formation runs, every other holds its place, runs, has ended or died with its machine."""
        assert self.world.early == []

    @invariant()
    def no_task_and_no_device_serves_two_processes(self) -> None:
        """For a machine that hung past its lease only the second half is guaranteed."""
        machines = self.world.machines.values()
        running = [key[:2] for machine in machines if not machine.frozen for key in machine.awake]
        assert len(set(running)) == len(running)
        for machine in machines:
            grants = list(machine.grants.values())
            devices = [device for grant in grants for device in grant.devices]
            assert len(set(devices)) == len(devices)
            assert sum(grant.cores for grant in grants) <= machine.capacity.cores

    def teardown(self) -> None:
        if sys.exc_info()[0] is not None:  # a law is already broken, or hypothesis gave this run up
            return
        world = self.world
        self._look()
        now_known = comparable(world.state, world.now)
        assert comparable(restore(loaded(world.log), RULES), world.now) == now_known
        for image in world.images:
            assert comparable(restore(loaded(world.log, image), RULES), world.now) == now_known
        self._a_standby_counts_the_same()
        self._one_record_is_damaged()
        self._history_is_true()
        self._everything_heals()

    def _a_standby_counts_the_same(self) -> None:
        """One that follows the log from its beginning."""
        follower, state = Recorder(), ClusterState(RULES)
        for batch in self.world.log:
            events, effects = replay(state, batch)
            follower.observe(Turn(events, effects, [], [], batch.revision), state)
        mine = self.world.recorder
        assert (follower.submitted, follower.started, follower.ended, follower.requeued) == (
            mine.submitted,
            mine.started,
            mine.ended,
            mine.requeued,
        )

    def _one_record_is_damaged(self) -> None:
        """Whichever record is missing, nothing is decided over the hole; what is before it is consistent."""
        log = self.world.log
        for missing in range(0, len(log) - 1, 1 + len(log) // 12):
            with pytest.raises(LogHole):
                restore(loaded(log[:missing] + log[missing + 1 :]), RULES)
            assert check(restore(loaded(log[:missing]), RULES)) == []

    def _history_is_true(self) -> None:
        for id, body in self.world.history.items():
            job = decode_job(body)
            assert {(id, p): s for p, s in enumerate(job.status)}.items() <= self.finals.items()

    def _everything_heals(self) -> None:
        """Once the faults stop, every task that any node could run is run, and nothing stays held."""
        world = self.world
        for _ in range(80):
            for machine in world.machines.values():
                machine.health = None
                heal(world, machine)
            world.wait(5.0)
            if not unfinished(world.state) and not any(node.lanes for node in world.state.nodes.values()):
                break
        assert unfinished(world.state) == []
        assert [ledger.name for ledger in world.state.table if not ledger.is_empty] == []
        assert check(world.state) == []

    def _refused(self, tell: Tell) -> Disposition:
        """Send a report that must end nothing, and return the answer."""
        (answer,) = self.world.turn(tell)
        assert isinstance(answer, Disposed)
        assert answer.disposition != Disposition.ACCEPTED
        assert not any(isinstance(event, AttemptEnded) for event in self.world.turns[-1].events)
        return answer.disposition

    def _look(self) -> None:
        """Read the turns that have not been read yet."""
        for turn in self.world.turns[self.seen :]:
            for event in turn.events:
                if isinstance(event, TaskPlaced):
                    assert event.key not in self.placed
                    assert event.key[2] > self.newest.get(event.key[:2], 0)
                    self.placed[event.key], self.newest[event.key[:2]] = event.node, event.key[2]
                elif isinstance(event, AttemptEnded):
                    assert event.key not in self.ended
                    self.ended.add(event.key)
                elif isinstance(event, BrakeSet | BrakeReleased):
                    self.braked = isinstance(event, BrakeSet)
                if isinstance(event, NodeLost) and self.braked:
                    assert event.cause != "lease over", "only an operator declares a node lost now"
                if isinstance(event, NodeJoined | NodeLost):
                    assert event.generation > self.leases.get(event.node, 0), "a lease is never given again"
                    self.leases[event.node] = event.generation
            for effect in turn.effects:
                if isinstance(effect, Send) and isinstance(effect.order, Start):
                    assert self.placed[effect.order.key] == effect.node
        self.seen = len(self.world.turns)

    def _join(self, name: str) -> None:
        cores, gpus = {"n1": (4, 0), "n2": (2, 2), "n3": (3, 1)}[name]
        machine = self.world.machines[name] = Machine(name, a_capacity(cores=cores, gpus=gpus, numa=1))
        self.world.watch(machine)
        self.world.hello(machine)

    def _job(self, fields: dict[str, object]) -> Job:
        gpus = 0 if fields["target"] == "n2::0" else fields["gpus"]
        return a_job(**(fields | {"gpus": gpus}), id=ulid(next(self.numbers), 0))  # type: ignore[arg-type]

    def _gang(self, fields: dict[str, Any]) -> Job:
        about = dict(fields)
        spare, members = about.pop("spare"), about.pop("members")
        asked = {name: about.pop(name) for name in ("cores", "gpus")}
        groups = [
            a_group(size, name=f"g{n}", min=max(1, size - spare), **asked) for n, size in enumerate(members)
        ]
        return a_gang(*groups, id=ulid(next(self.numbers), 0), **about)

    def _some_job(self, which: int) -> Job | None:
        known = list(self.world.state.jobs.values())
        return known[which % len(known)].job if known else None

    def _connected(self, which: int) -> Machine | None:
        found = [machine for machine in self.world.machines.values() if machine.connected]
        return found[which % len(found)] if found else None


def heal(world: SimulatedCluster, machine: Machine) -> None:
    """Undo every fault: the machine is connected, neither drained nor disabled, and its processes succeed."""
    if not machine.connected or machine.name not in world.state.nodes:
        machine.thaw(world.now)
        world.hello(machine)
    if world.state.nodes[machine.name].drain_reason is not None:
        world.turn(Undrain(machine.name))
    world.turn(SetElastic(machine.name, enabled=True))
    while machine.keeper.running:
        machine.keeper.end(next(iter(machine.keeper.running)), world.now, 0)
    world.report(machine)
    world.beat(machine)


def unfinished(state: ClusterState) -> list[str]:
    """Jobs that are not over although some node could run them."""
    return [
        id
        for id, job in state.jobs.items()
        if not job.is_over and state.table.could_ever(job.groups[0].request)
    ]


def comparable(state: ClusterState, now: float) -> object:
    """All that is durable, in one spelling: backoffs noticed, heaps and sets sorted."""
    apply(state, BackoffsEnded(at=now))
    image = msgspec.msgpack.decode(encode_state(state), type=ClusterImage)
    for job in image.jobs:
        for group in job.groups:
            group.again.sort()
        for attempt in job.live:
            attempt.row = 0  # a restart numbers the rows of the table anew
    for node in image.nodes:
        node.leftovers.sort()
    waiting = sorted(
        group.rank for job in state.jobs.values() for group in job.groups if group in state.waiting
    )
    free = sorted((ledger.name, ledger.cores_free, sorted(ledger.devices_free)) for ledger in state.table)
    return msgspec.to_builtins(image), waiting, free, list(state.counts)


TestClusterLife = ClusterLife.TestCase
