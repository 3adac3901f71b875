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
    Stop,
)
from phalanx.core.model.resources import Grant
from phalanx.core.model.status import Why
from phalanx.core.runner import Deed, Forget, ForgetBrief, Freeze, Halt, ProcessEnd, RunnerState, Spawn

LEASE_S = 20.0
jobs = st.sampled_from(("j1", "j2"))
keys = st.tuples(jobs, st.integers(0, 5), st.just(1))
pick = st.integers(0, 1 << 16)


def a_brief(job: str) -> Brief:
    return Brief(
        job, Command(("/bin/true",)), "", "default", job, 6, None, 5.0, 30.0 if job == "j2" else None
    )


class RunnerLife(RuleBasedStateMachine):
    """Orders of one coordinator after another, news of processes, and time."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = RunnerState()
        self.now = 100.0
        self.lease_until = 0.0
        self.epoch = 1
        self.lane_of: dict[AttemptKey, int] = {}  # every attempt ever started, and where
        self.running: dict[AttemptKey, int] = {}
        self.spawned: set[AttemptKey] = set()
        self.stopped: set[AttemptKey] = set()
        self.answered: dict[AttemptKey, Report] = {}  # ends of what was held, as they came into the outbox
        self.heard: set[AttemptKey] = set()  # whose end went out with some message
        self.forgotten: set[AttemptKey] = set()

    @initialize(kept=st.lists(st.tuples(keys, st.booleans()), max_size=2, unique_by=lambda row: row[0]))
    def a_runner_begins_with_what_its_keeper_kept(self, kept: list[tuple[AttemptKey, bool]]) -> None:
        for lane, (key, is_over) in enumerate(kept, start=101):
            self.lane_of[key] = lane
            self.spawned.add(key)
            self.runner.adopt(key, lane, self._end(0) if is_over else None, 50.0)
            if not is_over:
                self.running[key] = lane
        self._listen()
        self._welcome()

    # What a coordinator orders.

    @rule(key=keys, lane=st.integers(1, 3), briefed=st.sampled_from((True, True, True, False)))
    def start(self, key: AttemptKey, lane: int, briefed: bool) -> None:
        """An order may come twice, but an attempt belongs to one lane and, once answered, is never ordered again."""
        if key in self.forgotten:
            return
        if briefed:
            self._order(a_brief(key[0]))
        lane = self.lane_of.setdefault(key, lane)
        self._order(Start(key, lane, Grant(1, 0), None, 0))

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
        self.lease_until = self.now + LEASE_S
        self.runner.renew(self.lease_until)

    @rule(which=pick, what=st.sampled_from(tuple(Disposition)))
    def a_report_is_answered(self, which: int, what: Disposition) -> None:
        if self.runner.outbox:
            key = list(self.runner.outbox)[which % len(self.runner.outbox)]
            deeds = self.runner.disposed(key, what)
            assert deeds[:1] == ([] if what == Disposition.STALE_EPOCH else [Forget(key)])
            if deeds:
                self.forgotten.add(key)
            self._obey(deeds[1:])

    # What processes and time do.

    @rule(which=pick)
    def a_process_starts(self, which: int) -> None:
        if self.running:
            key = list(self.running)[which % len(self.running)]
            self._obey(self.runner.process_started(key, self.now))

    @rule(which=pick, code=st.sampled_from((0, 3, None)), twice=st.booleans())
    def a_process_ends(self, which: int, code: int | None, twice: bool) -> None:
        """With None there never was a process: no such program."""
        if not self.running:
            return
        key = list(self.running)[which % len(self.running)]
        del self.running[key]
        for _ in range(1 + twice):
            if code is None:
                self._obey(self.runner.process_refused(key, "no such program", self.now))
            else:
                self._obey(self.runner.process_ended(key, self._end(code), self.now))

    @rule(seconds=st.sampled_from((0.1, 0.6, 5.0, 21.0)))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self._obey(self.runner.tick(self.now))

    @rule(again=st.booleans())
    def reports_go_out(self, again: bool) -> None:
        if again:
            self.runner.resend()
        self.heard |= {report.key for report in self.runner.take_fresh() if not _is_start(report)}

    # The laws.

    @invariant()
    def a_lane_runs_one_at_a_time(self) -> None:
        lanes = list(self.running.values())
        assert len(set(lanes)) == len(lanes)

    @invariant()
    def the_listing_is_true(self) -> None:
        phases = dict(self.runner.listing())
        assert {key for key, phase in phases.items() if phase == Phase.RUNNING} == set(self.running)
        assert all(key in self.lane_of for key in phases)

    @invariant()
    def nobody_waits_in_a_lane_that_stands_still(self) -> None:
        phases = dict(self.runner.listing())
        for lane in self.runner.lanes.values():
            assert phases[lane[0]] == Phase.RUNNING
            assert all(phases[key] == Phase.QUEUED for key in list(lane)[1:])

    def teardown(self) -> None:
        """When every process has ended, every start has been answered, once."""
        if sys.exc_info()[0] is not None:
            return
        while self.running:
            self.a_process_ends(0, 0, False)
        self.reports_go_out(True)
        for key in self.lane_of:
            assert key in self.runner.outbox or key in self.forgotten
            assert key in self.heard or key in self.forgotten
        assert not self.runner.lanes
        assert all(phase == Phase.ENDED for _, phase in self.runner.listing())

    def _order(self, order: Order) -> None:
        self._obey(self.runner.order(self.epoch, order, self.now))

    def _obey(self, deeds: list[Deed]) -> None:
        self._listen()
        for deed in deeds:
            match deed:
                case Spawn():
                    key = deed.start.key
                    assert self.now <= self.lease_until
                    assert key not in self.spawned, "an attempt is started at most once"
                    assert key not in self.stopped, "what was stopped is never started"
                    assert key not in self.answered
                    self.spawned.add(key)
                    self.running[key] = deed.start.lane
                case Halt() | Freeze():
                    assert deed.key in self.running
                case ForgetBrief():
                    assert deed.job not in {key[0] for key, _ in self.runner.listing()}
                case Forget():
                    raise AssertionError("nothing is forgotten before a coordinator knows it")

    def _listen(self) -> None:
        """Each end that appears in the outbox for something held appears once."""
        held = dict(self.runner.listing())
        for key, report in self.runner.outbox.items():
            assert isinstance(report, Ended | Returned)
            if key in held:
                assert self.answered.setdefault(key, report) is report

    def _welcome(self) -> None:
        self.lease_until = max(self.lease_until, self.now + LEASE_S)
        assert self.runner.welcome(self.epoch, self.lease_until)
        assert set(self.runner.outbox) <= {report.key for report in self.runner.fresh}

    def _end(self, code: int) -> ProcessEnd:
        return ProcessEnd(code, None, False, None, 50.0, self.now)


def _is_start(report: Report) -> bool:
    return not isinstance(report, Ended | Returned)


TestRunnerLife = RunnerLife.TestCase
