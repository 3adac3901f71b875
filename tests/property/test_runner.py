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
    Go,
    Order,
    Pause,
    Phase,
    Ready,
    Report,
    Resume,
    Returned,
    Roll,
    Start,
    Stop,
    Why,
)
from phalanx.core.model.resources import Grant
from phalanx.core.runner.effects import (
    Forget,
    ForgetBrief,
    Freeze,
    Halt,
    Release,
    Retract,
    RunnerEffect,
    Spawn,
)
from phalanx.core.runner.state import RETOLD, RunnerState
from tests.support.fake_keeper import FakeKeeper

LEASE_S = 20.0
GANG = "g1"
jobs = st.sampled_from(("j1", "j2", GANG))
keys = st.tuples(jobs, st.integers(0, 5), st.just(1))
members = st.tuples(st.just(GANG), st.integers(0, 5), st.just(1))
kinds = st.sampled_from(("runs", "ended", "waits", "waits"))
pick = st.integers(0, 1 << 16)


def a_brief(job: str) -> Brief:
    limit_s = 30.0 if job == "j2" else None
    return Brief(job, 0, Command(("/bin/true",)), "", "default", job, 6, None, 5.0, limit_s)


def a_roll() -> Roll:
    return Roll(GANG, 1, (("n1", "10.0.0.1"),), tuple((position, 0) for position in range(6)))


def a_start(key: AttemptKey, lane: int) -> Start:
    return Start(key, lane, Grant(1, 0), None, 0, formation=int(key[0] == GANG))


class RunnerLife(RuleBasedStateMachine):
    """Orders of one coordinator after another, events of the keeper, and time."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = RunnerState()
        self.keeper = FakeKeeper(self._seen)
        self.now = 100.0
        self.epoch = 1
        self.lane_of: dict[AttemptKey, int] = {}  # every attempt ever started, and where
        self.stopped: set[AttemptKey] = set()
        self.never_to_run: set[AttemptKey] = set()  # stopped before there was a process
        self.told_to_go: set[AttemptKey] = set()
        self.ran: set[AttemptKey] = set()  # every attempt that ever had a process
        self.answered: dict[AttemptKey, Report] = {}  # ends of what was held, as they came into the outbox
        self.heard: set[AttemptKey] = set()  # whose end was sent in some message
        self.forgotten: set[AttemptKey] = set()

    @initialize(kept=st.lists(st.tuples(keys, kinds), max_size=3, unique_by=lambda row: row[0]))
    def a_runner_begins_with_what_its_keeper_kept(self, kept: list[tuple[AttemptKey, str]]) -> None:
        self.keeper.lease_until = self.now + 1
        lane = 101
        for key, kind in kept:
            lane += kind != "waits"  # an attempt that waits is in the lane of the one before
            self.lane_of[key] = lane
            self.keeper.do([Spawn(a_start(key, lane), a_brief(key[0]), held=key[0] == GANG)], self.now)
            if kind == "ended" and key in self.keeper.running:
                self.keeper.end(key, self.now, 0)
        self._attach()

    # What a coordinator orders.

    @rule(key=keys, lane=st.integers(1, 2), briefed=st.sampled_from((True, True, True, False)))
    def start(self, key: AttemptKey, lane: int, briefed: bool) -> None:
        """An order may come twice, but an attempt belongs to one lane and, once answered, is never ordered again."""
        if key in self.forgotten:
            return
        if briefed:
            self._order(a_brief(key[0]))
            self._order(a_roll())
        lane = self.lane_of.setdefault(key, lane)
        self._order(a_start(key, lane))

    @rule(job=jobs, lane=st.integers(1, 2), many=st.integers(2, 6))
    def start_several_in_one_lane(self, job: str, lane: int, many: int) -> None:
        for position in range(many):
            self.start((job, position, 1), lane, True)

    @rule(key=members, twice=st.booleans())
    def go(self, key: AttemptKey, twice: bool) -> None:
        """The order to go may come at any time and any number of times."""
        if key in self.runner.held and self.now <= self.runner.lease_until:
            self.told_to_go.add(key)
        self._order(Go(key))
        if twice:
            before = (self.runner.listing(), dict(self.runner.outbox), set(self.ran))
            self._order(Go(key))
            assert (self.runner.listing(), dict(self.runner.outbox), self.ran) == before

    @rule()
    def a_gang_is_told_to_go(self) -> None:
        for key in [key for key, phase in self.runner.listing() if phase == Phase.READY]:
            self.go(key, False)

    @rule(key=keys)
    def stop(self, key: AttemptKey) -> None:
        self.stopped.add(key)
        if key not in self.keeper.running:
            self.never_to_run.add(key)
        self._order(Stop(key, Why.CANCELLED, 5.0))

    @rule(key=keys, paused=st.booleans())
    def pause(self, key: AttemptKey, paused: bool) -> None:
        self._order(Pause(key) if paused else Resume(key))

    @rule(job=jobs)
    def dismiss(self, job: str) -> None:
        self._order(Dismiss(job))

    @rule(key=keys, stops=st.booleans())
    def an_order_of_an_older_epoch_is_refused(self, key: AttemptKey, stops: bool) -> None:
        order = Stop(key, Why.CANCELLED, 0.0) if stops else a_start(key, 1)
        before = (self.runner.listing(), dict(self.runner.outbox))
        assert self.runner.order(self.epoch - 1, order, self.now) == []
        assert (self.runner.listing(), dict(self.runner.outbox)) == before

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
            effects = self.runner.disposed(key, what)
            assert effects[:1] == ([] if what in RETOLD else [Forget(key)])
            if effects:
                self.forgotten.add(key)
            self._obey(effects)

    # What processes and time do.

    @rule()
    def processes_start(self) -> None:
        for key in list(self.keeper.ready):
            self.keeper.announce(key, self.now)
        for key in list(self.keeper.running):
            self.keeper.announce(key, self.now)
        self._listen()

    @rule(is_prompt=st.booleans())
    def readiness_is_told(self, is_prompt: bool) -> None:
        """At once, or after a while: orders may come in between."""
        self.keeper.is_prompt = is_prompt

    @rule(which=pick)
    def a_member_cannot_be_made_ready(self, which: int) -> None:
        if self.keeper.ready:
            key = list(self.keeper.ready)[which % len(self.keeper.ready)]
            self.keeper.fail_to_start(key, "no such program", self.now)
            self.never_to_run.add(key)
            self._listen()

    @rule()
    def the_runner_dies_and_its_successor_adopts(self) -> None:
        """The coordinator, which gets the listing, decides about what its keeper does not know."""
        self.runner = RunnerState()
        self.answered.clear()
        self._attach()
        listed = dict(self.runner.listing())
        self.forgotten |= (set(self.lane_of) - set(listed)) | self.stopped
        assert {key for key, phase in listed.items() if phase == Phase.READY} == set(self.keeper.ready)
        assert {Ready(key) for key in self.keeper.ready} <= set(self.runner.fresh)

    @rule()
    def the_keeper_dies(self) -> None:
        """The next keeper knows how processes ended; what had not started is sent to it again, or answered."""
        unstarted = {*self.keeper.ready, *self.keeper.waiting}
        self.keeper.die(self.now)
        self._obey(self.runner.keeper_lost(self.now, (), [*self.runner.held]), with_lease=False)
        again = {*self.keeper.running, *self.keeper.ready, *self.keeper.waiting}
        assert again <= unstarted
        assert unstarted - again <= set(self.runner.outbox)

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
        reports = self.runner.take_fresh()
        self.heard |= {report.key for report in reports if isinstance(report, Ended | Returned)}
        phases = dict(self.runner.listing())
        for report in reports:
            assert not isinstance(report, Ready) or phases[report.key] in (Phase.READY, Phase.RUNNING)

    # The laws.

    @invariant()
    def the_listing_is_true(self) -> None:
        phases = dict(self.runner.listing())
        alive = {key for key, phase in phases.items() if phase != Phase.ENDED}
        assert alive == {*self.keeper.running, *self.keeper.waiting, *self.keeper.ready}
        assert {key for key, phase in phases.items() if phase == Phase.RUNNING} <= set(self.keeper.running)
        ready = {key for key, phase in phases.items() if phase == Phase.READY}
        assert ready <= {
            *self.keeper.ready,
            *self.keeper.running,
        }  # it may run already, without a report of it
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
        while self.keeper.running or self.keeper.ready:
            for key in list(self.keeper.ready):
                self.stop(key)
            self.a_process_ends(0, 0)
        self.reports_go_out(True)
        for key in self.lane_of:
            assert key in self.runner.outbox or key in self.forgotten
            assert key in self.heard or key in self.forgotten
        assert not self.runner.lanes
        assert not self.keeper.waiting

    def _order(self, order: Order) -> None:
        self._obey(self.runner.order(self.epoch, order, self.now))

    def _obey(self, effects: list[RunnerEffect], with_lease: bool = True) -> None:
        phases = dict(self.runner.listing())
        for effect in effects:
            match effect:
                case Spawn():
                    key = effect.start.key
                    assert self.now <= self.runner.lease_until or not with_lease
                    assert key not in self.ran, "an attempt is started at most once"
                    assert key not in self.stopped, "what was stopped is never started"
                    assert key not in self.answered
                    assert effect.held or key[0] != GANG or key in self.told_to_go
                case Release():
                    assert phases[effect.key] == Phase.READY
                    assert effect.key in self.told_to_go
                case Halt() | Freeze():
                    assert phases[effect.key] != Phase.ENDED
                case Retract():
                    assert phases[effect.key] == Phase.QUEUED
                    assert effect.key[0] != GANG or self.runner.held[effect.key].start is None
                case ForgetBrief():
                    assert effect.job not in {key[0] for key in phases}
                case Forget():
                    assert effect.key in self.forgotten, "nothing is forgotten before a coordinator knows it"
        self.keeper.do(effects, self.now)
        self._listen()

    def _seen(self, effect: str, key: AttemptKey) -> None:
        if effect == "spawns":
            assert key not in self.ran, "an attempt runs at most once"
            assert key not in self.never_to_run, "what was stopped or refused before it ran never runs"
            assert key[0] != GANG or key in self.told_to_go, "no member runs before the word to go"
            self.ran.add(key)

    def _attach(self) -> None:
        self.keeper.attach(self.runner)
        self._listen()
        self._welcome()

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
