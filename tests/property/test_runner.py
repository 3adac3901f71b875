"""A runner's laws, whatever it is ordered and whatever its processes do."""

from __future__ import annotations

import sys

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from phalanx.core.model.job import Command
from phalanx.core.model.orders import (
    AttemptKey,
    Brief,
    Dismiss,
    Disposition,
    Ended,
    Order,
    Pause,
    Phase,
    Report,
    Resume,
    Returned,
    Start,
    Started,
    Stop,
)
from phalanx.core.model.resources import Grant
from phalanx.core.model.status import Why
from phalanx.core.runner import Deed, Forget, ForgetBrief, Freeze, Halt, Retract, RunnerState, Spawn
from tests.property.keeper import PlayedKeeper

LEASE_S = 20.0
jobs = st.sampled_from(("j1", "j2"))
keys = st.tuples(jobs, st.integers(0, 5), st.just(1))
kinds = st.sampled_from(("runs", "ended", "waits"))
pick = st.integers(0, 1 << 16)


def a_brief(job: str) -> Brief:
    return Brief(
        job, Command(("/bin/true",)), "", "default", job, 6, None, 5.0, 30.0 if job == "j2" else None
    )


class RunnerLife(RuleBasedStateMachine):
    """Orders of one coordinator after another, news of the keeper, and time."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = RunnerState()
        self.keeper = PlayedKeeper(self._seen)
        self.now = 100.0
        self.epoch = 1
        self.lane_of: dict[AttemptKey, int] = {}  # every attempt ever started, and where
        self.stopped: set[AttemptKey] = set()
        self.spawned: set[AttemptKey] = set()
        self.answered: dict[AttemptKey, Report] = {}  # ends of what was held, as they came into the outbox
        self.heard: set[AttemptKey] = set()  # whose end went out with some message
        self.forgotten: set[AttemptKey] = set()

    @initialize(kept=st.lists(st.tuples(keys, kinds), max_size=3, unique_by=lambda row: row[0]))
    def a_runner_begins_with_what_its_keeper_kept(self, kept: list[tuple[AttemptKey, str]]) -> None:
        self.keeper.lease_until = self.now + 1
        lane = 101
        for key, kind in kept:
            lane += kind != "waits"  # who waits stands in the lane of the one before
            self.lane_of[key] = lane
            self.keeper.do([Spawn(Start(key, lane, Grant(1, 0), None, 0), a_brief(key[0]))], self.now)
            if kind == "ended":
                self.keeper.end(key, self.now, 0)
        self.keeper.attach(self.runner)
        self._listen()
        self._welcome()

    # What a coordinator orders.

    @rule(key=keys, lane=st.integers(1, 2), briefed=st.sampled_from((True, True, True, False)))
    def start(self, key: AttemptKey, lane: int, briefed: bool) -> None:
        """An order may come twice, but an attempt belongs to one lane and, once answered, is never ordered again."""
        if key in self.forgotten:
            return
        if briefed:
            self._order(a_brief(key[0]))
        lane = self.lane_of.setdefault(key, lane)
        self._order(Start(key, lane, Grant(1, 0), None, 0))

    @rule(job=jobs, lane=st.integers(1, 2), many=st.integers(2, 6))
    def start_several_in_one_lane(self, job: str, lane: int, many: int) -> None:
        for position in range(many):
            self.start((job, position, 1), lane, True)

    @rule(key=keys)
    def stop(self, key: AttemptKey) -> None:
        self.stopped.add(key)
        self._order(Stop(key, Why.CANCELLED, 5.0))

    @rule(key=keys, paused=st.booleans())
    def pause(self, key: AttemptKey, paused: bool) -> None:
        self._order(Pause(key) if paused else Resume(key))

    @rule(job=jobs)
    def dismiss(self, job: str) -> None:
        self._order(Dismiss(job))

    @rule(key=keys, stops=st.booleans())
    def an_order_of_an_older_epoch_is_refused(self, key: AttemptKey, stops: bool) -> None:
        order = Stop(key, Why.CANCELLED, 0.0) if stops else Start(key, 1, Grant(1, 0), None, 0)
        before = (self.runner.listing(), dict(self.runner.outbox), self.runner.refused_orders)
        assert self.runner.order(self.epoch - 1, order, self.now) == []
        assert (self.runner.listing(), dict(self.runner.outbox), self.runner.refused_orders - 1) == before

    @rule(newer=st.booleans())
    def a_coordinator_welcomes_it(self, newer: bool) -> None:
        self.epoch += newer
        assert not self.runner.welcome(self.epoch - 2, self.now + 1e6), "an older coordinator is not served"
        self._welcome()

    @rule()
    def the_lease_is_renewed(self) -> None:
        self.runner.renew(self.now + LEASE_S)
        self.keeper.lease_until = self.now + LEASE_S

    @rule(which=pick, what=st.sampled_from(tuple(Disposition)))
    def a_report_is_answered(self, which: int, what: Disposition) -> None:
        if self.runner.outbox:
            key = list(self.runner.outbox)[which % len(self.runner.outbox)]
            deeds = self.runner.disposed(key, what)
            assert deeds[:1] == ([] if what == Disposition.STALE_EPOCH else [Forget(key)])
            if deeds:
                self.forgotten.add(key)
            self._obey(deeds)

    # What processes and time do.

    @rule()
    def processes_start(self) -> None:
        for key in list(self.keeper.running):
            self.keeper.announce(key, self.now)
        self._listen()

    @rule(which=pick, code=st.sampled_from((0, 3, None)))
    def a_process_ends(self, which: int, code: int | None) -> None:
        """With None there never was a process: no such program."""
        if not self.keeper.running:
            return
        key = list(self.keeper.running)[which % len(self.keeper.running)]
        if code is None:
            self.keeper.fail_to_start(key, "no such program", self.now)
        else:
            self.keeper.end(key, self.now, code)
            assert self.runner.process_ended(key, self.keeper.ended[key][1]) == [], "told twice, it ends once"
        self._listen()

    @rule(seconds=st.sampled_from((0.1, 0.6, 1.1, 1.1, 5.0, 21.0)))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.processes_start()  # by then it is known
        self.keeper.fence(self.now)
        self._obey(self.runner.tick(self.now))

    @rule(again=st.booleans())
    def reports_go_out(self, again: bool) -> None:
        if again:
            self.runner.resend()
        self.heard |= {report.key for report in self.runner.take_fresh() if not isinstance(report, Started)}

    # The laws.

    @invariant()
    def the_listing_is_true(self) -> None:
        phases = dict(self.runner.listing())
        alive = {key for key, phase in phases.items() if phase != Phase.ENDED}
        assert alive == {*self.keeper.running, *self.keeper.waiting}
        assert {key for key, phase in phases.items() if phase == Phase.RUNNING} <= set(self.keeper.running)
        assert all(key in self.lane_of for key in phases)

    @invariant()
    def lanes_hold_what_is_alive_in_order(self) -> None:
        phases = dict(self.runner.listing())
        lanes = self.runner.lanes.values()
        assert sorted(key for lane in lanes for key in lane) == sorted(
            key for key, phase in phases.items() if phase != Phase.ENDED
        )
        assert all(phases[key] == Phase.QUEUED for lane in lanes for key in list(lane)[1:])

    def teardown(self) -> None:
        """When every process has ended, every start has been answered, once."""
        if sys.exc_info()[0] is not None:
            return
        while self.keeper.running:
            self.a_process_ends(0, 0)
        self.reports_go_out(True)
        for key in self.lane_of:
            assert key in self.runner.outbox or key in self.forgotten
            assert key in self.heard or key in self.forgotten
        assert not self.runner.lanes
        assert not self.keeper.waiting

    def _order(self, order: Order) -> None:
        self._obey(self.runner.order(self.epoch, order, self.now))

    def _obey(self, deeds: list[Deed]) -> None:
        phases = dict(self.runner.listing())
        for deed in deeds:
            match deed:
                case Spawn():
                    key = deed.start.key
                    assert self.now <= self.runner.lease_until
                    assert key not in self.spawned, "an attempt is started at most once"
                    assert key not in self.stopped, "what was stopped is never started"
                    assert key not in self.answered
                    self.spawned.add(key)
                case Halt() | Freeze():
                    assert phases[deed.key] != Phase.ENDED
                case Retract():
                    assert phases[deed.key] == Phase.QUEUED
                case ForgetBrief():
                    assert deed.job not in {key[0] for key in phases}
                case Forget():
                    assert deed.key in self.forgotten, "nothing is forgotten before a coordinator knows it"
        self.keeper.do(deeds, self.now)
        self._listen()

    def _seen(self, deed: str, key: AttemptKey) -> None:
        if deed == "spawns":
            self.spawned.add(key)

    def _listen(self) -> None:
        """Each end that appears in the outbox for something held appears once."""
        held = dict(self.runner.listing())
        for key, report in self.runner.outbox.items():
            assert isinstance(report, Ended | Returned)
            if key in held:
                assert self.answered.setdefault(key, report) is report

    def _welcome(self) -> None:
        assert self.runner.welcome(self.epoch, self.now + LEASE_S)
        self.keeper.lease_until = self.runner.lease_until
        assert set(self.runner.outbox) <= {report.key for report in self.runner.fresh}


TestRunnerLife = RunnerLife.TestCase
