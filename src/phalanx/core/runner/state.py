"""The runner's own small state machine: orders and process news in, effects and reports out.

A runner starts an attempt at most once, runs the attempts of a lane one after another, and keeps every end in
its outbox until a coordinator has disposed of it. It accepts no order of an older epoch and starts nothing
once its lease is over. A member of a gang is got ready and then stands at the barrier, in the keeper, until the
word to go; that it is ready is told again with every listing. An attempt with an image is prepared first: the shell
gets the image ready, and only then the keeper is told of the attempt. Why something ended is judged in `attempts.py`.
Processes, clocks and connections belong to the shell in `runner/`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from phalanx.core.model.job import JobId
from phalanx.core.model.orders import (
    AttemptKey,
    Brief,
    Dismiss,
    Disposition,
    Ended,
    Exit,
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
    Started,
    Stop,
    Why,
)
from phalanx.core.runner import attempts
from phalanx.core.runner.attempts import LATE_S, Briefing, Held, ProcessEnd, exit_of, exit_unstarted, unseen
from phalanx.core.runner.effects import (
    Forget,
    ForgetBrief,
    Freeze,
    Halt,
    Prepare,
    Release,
    Retract,
    RunnerEffect,
    Spawn,
    StopPreparing,
)

TOMBSTONES_MAX = 10_000
UNSTARTED = (Phase.QUEUED, Phase.READY)
RETURN_AFTER_S = 1.0  # how long an attempt may run before those queued behind it are given back
RETOLD = (Disposition.STALE_EPOCH, Disposition.STALE_LEASE)  # after these a report is kept, and told again
Keys = Collection[AttemptKey]


class RunnerState:
    """What this runner holds. Methods take what happened and return the effects to carry out; reports go to `fresh`."""

    def __init__(self) -> None:
        self.epoch = 0
        self.lease_until = 0.0
        self.start_within_s = 20.0  # an attempt starts within this time of the order, or never
        self.briefing = Briefing()
        self.held: dict[AttemptKey, Held] = {}
        self.lanes: dict[int, deque[AttemptKey]] = {}
        self.outbox: dict[AttemptKey, Report] = {}  # ends that no coordinator has disposed of yet
        self.fresh: list[Report] = []  # reports to send with the next message
        self._ended_in: dict[int, int] = {}  # by lane: how many ends are among them
        self._is_short = self._is_awaited = False  # see `is_urgent`
        self.tombstones: dict[AttemptKey, None] = {}

    def adopt(
        self,
        key: AttemptKey,
        lane: int,
        end: ProcessEnd | None,
        started_at: float | None,
        is_ready: bool = False,
        since: float | None = None,
    ) -> None:
        """After our own restart: an attempt that the keeper has kept for us.

        Without a start it still waits, for its lane or, if it is ready, at the barrier. `since` is when it started by
        a clock that does not step.
        """
        unstarted = Phase.READY if is_ready else Phase.QUEUED
        held = self.held[key] = Held(None, lane, unstarted if started_at is None else Phase.RUNNING)
        held.started_at, held.since = started_at, started_at if since is None else since
        self.lanes.setdefault(lane, deque()).append(key)
        if end is not None:
            self._close(key, held, Ended(key, exit_of(end, None, started_at)))

    def welcome(self, epoch: int, lease_until: float) -> bool:
        """A coordinator took us in. False if it is of an older epoch than one we have served."""
        if epoch < self.epoch:
            return False
        self.epoch = epoch
        self.renew(lease_until)
        ready = [key for key, each in self.held.items() if each.phase == Phase.READY and not each.stopping]
        self.fresh, self._is_awaited = [*self.outbox.values(), *map(Ready, ready)], bool(ready)
        return True

    def prune(self) -> list[RunnerEffect]:
        """A new session sends briefs anew, so those of which nothing is held may go."""
        return [effect for job in self.briefing.jobs for effect in self._dismiss(job)]

    def renew(self, lease_until: float) -> None:
        self.lease_until = max(self.lease_until, lease_until)

    def listing(self) -> list[tuple[AttemptKey, Phase]]:
        """Everything held, for a hello or a heartbeat."""
        return [(key, held.phase) for key, held in self.held.items()]

    def order(self, epoch: int, order: Order, now: float) -> list[RunnerEffect]:
        """Obey one order, unless it comes from a coordinator that has been replaced."""
        if epoch < self.epoch:
            return []
        match order:
            case Start():
                return self._start(order, now)
            case Stop():
                return self._stop(order, now)
            case Go():
                return self._go(order.key, now)
            case Brief() | Roll():
                self._learn(order)
            case Dismiss():
                return self._dismiss(order.job)
            case Pause() | Resume():
                held = self.held.get(order.key)
                if held is not None and held.phase == Phase.RUNNING:
                    return [Freeze(order.key, isinstance(order, Pause))]
        return []

    def process_ready(self, key: AttemptKey) -> list[RunnerEffect]:
        """The keeper has made sure that it can start, and holds it; if the word to go is there, it goes."""
        held = self.held.get(key)
        if held is None or held.phase != Phase.QUEUED:
            return []
        held.phase = Phase.READY
        if held.stopping is not None:
            return []
        self.fresh.append(Ready(key))
        self._is_awaited = True
        return [Release(key, held.go_by)] if held.may_go else []

    def process_started(self, key: AttemptKey, at: float, since: float | None = None) -> list[RunnerEffect]:
        """It runs: since `at` by the wall clock, which is shown, and `since` by one that does not step."""
        held = self.held.get(key)
        if held is None or held.phase == Phase.ENDED:
            return []
        held.started_at, held.phase = at, Phase.RUNNING
        held.since = at if since is None else since
        self._set_deadline(key, held)
        self.fresh.append(Started(key, at))
        return []

    def process_refused(self, key: AttemptKey, code: str, message: str, now: float) -> list[RunnerEffect]:
        """The keeper made no process: it was told not to, or there is no such program or folder."""
        held = self.held.get(key)
        if held is None or held.phase == Phase.ENDED:
            return []
        if code == "retracted":
            self._close(key, held, Returned(key))
        elif code == "late":
            self.give_back(key, now)
        elif held.phase == Phase.RUNNING:  # it ran, and the keeper knows it no more
            self.process_ended(key, unseen(held.started_at, now))
        else:
            self._close(key, held, Ended(key, exit_unstarted(code, message, held.stopping, now)))
        return []

    def process_ended(self, key: AttemptKey, end: ProcessEnd) -> list[RunnerEffect]:
        held = self.held.get(key)
        if held is not None and held.phase != Phase.ENDED:
            self._close(key, held, Ended(key, exit_of(end, held.stopping, held.started_at)))
        return []

    def keeper_lost(self, now: float, listed: Keys, own: Keys) -> list[RunnerEffect]:
        """Their keeper died. What had not started is sent again, if it can be; what ran and is not listed is over."""
        effects: list[RunnerEffect] = []
        for key in [key for key in own if self.held[key].phase == Phase.RUNNING and key not in listed]:
            self.process_ended(key, unseen(self.held[key].started_at, now))
        for key, held in [(key, self.held[key]) for key in own if self.held[key].phase in UNSTARTED]:
            start = held.start
            brief = None if start is None else self.briefing.brief(key[0], start.group)
            if held.stopping is not None:
                effects += self.process_refused(key, "stopped", "it was stopped before it could start", now)
            elif start is None or brief is None:
                end = Exit(Why.LOST, ended_at=now, message="its keeper died before it could start")
                self._close(key, held, Ended(key, end))
            elif not held.can_start(now + LATE_S):
                self.give_back(key, now)
            else:
                if held.phase == Phase.READY and not held.may_go:  # it has to be got ready once more
                    held.start_by = self._by(now)
                by = held.go_by if held.may_go else held.start_by
                held.phase = Phase.QUEUED
                effects.append(Spawn(start, brief, held.roll, start.formation > 0 and not held.may_go, by))
        return effects

    def overdue(self, now: float) -> list[AttemptKey]:
        """Attempts that the keeper has said nothing about, and that it can start no more."""
        found = ((key, held) for key, held in self.held.items() if held.phase in UNSTARTED)
        return [key for key, held in found if not held.can_start(now)]

    def give_back(self, key: AttemptKey, now: float) -> None:
        """It has not started and never will: another node may have it."""
        held = self.held[key]
        if held.stopping is not None:
            message = "it was stopped before it could start"
            self._close(key, held, Ended(key, exit_unstarted("stopped", message, held.stopping, now)))
        elif held.is_member:
            unconfirmed = Exit(Why.UNCONFIRMED, -1, ended_at=now, message="its keeper did not confirm start")
            self._close(key, held, Ended(key, unconfirmed))
        else:
            self._close(key, held, Returned(key))

    def disposed(self, key: AttemptKey, disposition: Disposition) -> list[RunnerEffect]:
        """The coordinator answered a report. Under another epoch or lease the same end may yet count."""
        if disposition in RETOLD or key not in self.outbox:
            return []
        del self.outbox[key]
        self.held.pop(key, None)
        return [Forget(key), *(self._dismiss(key[0]) if self.briefing.is_dismissed(key[0]) else ())]

    def tick(self, now: float) -> list[RunnerEffect]:
        """Time limits, lanes whose head takes long, and a lease that is over."""
        effects: list[RunnerEffect] = []
        if now > self.lease_until:
            late = [(key, held) for key, held in self.held.items() if held.phase == Phase.PREPARING]
            effects += [each for key, held in late for each in self._unprepared(key, held, now)]
        for lane in list(self.lanes.values()):
            head = self.held[lane[0]]
            if head.deadline is not None and now >= head.deadline and head.stopping is None:
                head.stopping = Why.TIMEOUT
                effects.append(Halt(lane[0], head.grace_s))
            long_s = now - head.since if head.since is not None else 0.0
            if len(lane) > 1 and (long_s > RETURN_AFTER_S or now > self.lease_until):
                effects += [Retract(key) for key in lane if self._may_be_given_back(self.held[key])]
        return effects

    def resend(self) -> None:
        """Ends that were reported but never answered go out again with the next message."""
        waiting = {report.key for report in self.fresh}
        self.fresh += [report for key, report in self.outbox.items() if key not in waiting]

    def take_fresh(self, everything: bool = True) -> list[Report]:
        """The reports to send now. What came before an end needs no word of its own when the end is told as well.

        Unless it is to be everything, starts in lanes with more to do wait: such tasks are short, and end soon.
        """
        reports, self.fresh, self._ended_in = self.fresh, [], {}
        self._is_short = self._is_awaited = False
        told: list[Report] = []
        for each in reports:
            if type(each) is Ended or attempts.is_news(each, self.held.get(each.key)):
                waits = type(each) is Started and not everything and self._goes_on(each.key)
                (self.fresh if waits else told).append(each)
        return told

    def _goes_on(self, key: AttemptKey) -> bool:
        return len(self.lanes[self.held[key].lane]) > 1

    @property
    def is_urgent(self) -> bool:
        """True if a lane has no more left than it has done since the last message, or a gang may wait for a member."""
        if self._is_short or self._is_awaited:
            return True
        return not self.is_busy and any(type(report) is not Started for report in self.fresh)

    @property
    def is_busy(self) -> bool:
        """True while every lane has more to do, so that no report is urgent."""
        return bool(self.lanes) and all(len(lane) > 1 for lane in self.lanes.values())

    def _dismiss(self, job: JobId) -> list[RunnerEffect]:
        if any(key[0] == job for key in self.held):
            self.briefing.dismiss_later(job)
            return []
        return [ForgetBrief(job, group) for group in self.briefing.forget(job)]

    def _learn(self, told: Brief | Roll) -> None:
        """Keep it; attempts adopted after a restart get their time limit back from a brief."""
        self.briefing.learn(told)
        if isinstance(told, Brief):
            for key, held in self.held.items():
                if key[0] == told.job:
                    self._set_deadline(key, held)

    def _set_deadline(self, key: AttemptKey, held: Held) -> None:
        brief = self.briefing.any_brief(key[0])
        if brief is None or held.since is None:
            return
        held.deadline = None if brief.time_limit_s is None else held.since + brief.time_limit_s
        held.grace_s = brief.grace_s

    def _start(self, order: Start, now: float) -> list[RunnerEffect]:
        if order.key in self.held:
            return []
        if order.key in self.tombstones:
            self._report(
                Ended(order.key, Exit(Why.CANCELLED, ended_at=now, message="stopped before it started"))
            )
            return []
        job, member = order.key[0], order.formation > 0
        brief = self.briefing.brief(job, order.group)
        roll = self.briefing.roll(job, order.formation) if member else None
        held = self.held[order.key] = Held(order, order.lane, Phase.QUEUED, roll)
        self.lanes.setdefault(order.lane, deque()).append(order.key)
        if now > self.lease_until or brief is None or (member and roll is None):
            why = "the lease was over" if now > self.lease_until else "its brief or its roll never arrived"
            exit = Exit(Why.FENCED, ended_at=now, message=f"not started: {why}")
            self._close(order.key, held, Ended(order.key, exit))
            return []
        if brief.command.image:
            held.phase = Phase.PREPARING
            return [Prepare(order, brief)]
        held.start_by = self._by(now)
        return [Spawn(order, brief, roll, member, held.start_by)]

    def prepared(self, key: AttemptKey, now: float) -> list[RunnerEffect]:
        """Its image is ready. From now on it has as long to start as one without."""
        held = self.held.get(key)
        if held is None or held.phase != Phase.PREPARING or held.start is None:
            return []
        if now > self.lease_until:
            return self._unprepared(key, held, now)
        brief = self.briefing.brief(key[0], held.start.group)
        if brief is None:
            return self.process_refused(key, "fenced", "not started: its brief is gone", now)
        held.phase, held.start_by = Phase.QUEUED, self._by(now)
        return [Spawn(held.start, brief, held.roll, held.start.formation > 0, held.start_by)]

    def give_back_unprepared(self, now: float) -> list[RunnerEffect]:
        """The runner stops: whoever waits for an image may wait for it elsewhere."""
        keys = [key for key, held in self.held.items() if held.phase == Phase.PREPARING]
        for key in keys:
            self.give_back(key, now)
        return [StopPreparing(key) for key in keys]

    def _unprepared(self, key: AttemptKey, held: Held, now: float) -> list[RunnerEffect]:
        """It is over before its image was ready: it was stopped, or the lease ended."""
        code = "fenced" if held.stopping is None else "stopped"
        message = "it was stopped before its image was ready"
        if held.stopping is None:
            message = "not started: the lease was over before its image was ready"
        self._close(key, held, Ended(key, exit_unstarted(code, message, held.stopping, now)))
        return [StopPreparing(key)]

    def _go(self, key: AttemptKey, now: float) -> list[RunnerEffect]:
        """The gang is whole. Told twice, or about what runs or is over, it changes nothing."""
        held = self.held.get(key)
        if held is None or held.phase not in UNSTARTED or held.stopping is not None or now > self.lease_until:
            return []
        if not held.may_go:  # told again, it may not go any later
            held.may_go, held.go_by = True, self._by(now)
        return [Release(key, held.go_by)] if held.phase == Phase.READY else []

    def _by(self, now: float) -> float:
        """Until when one that is told to start now may do so."""
        return min(self.lease_until, now + self.start_within_s)

    def _stop(self, order: Stop, now: float) -> list[RunnerEffect]:
        self.tombstones[order.key] = None
        while len(self.tombstones) > TOMBSTONES_MAX:
            del self.tombstones[next(iter(self.tombstones))]
        held = self.held.get(order.key)
        if held is None:  # never known, or long over: say so, because somebody waits for the answer
            self._report(Ended(order.key, Exit(order.why, ended_at=now, message="it was not running")))
            return []
        if held.phase == Phase.ENDED or held.stopping is not None:
            return []
        held.stopping = order.why
        if held.phase == Phase.PREPARING:
            return self._unprepared(order.key, held, now)
        return [Halt(order.key, order.grace_s)]

    def _close(self, key: AttemptKey, held: Held, report: Ended | Returned) -> None:
        """It is over here; what is left is that a coordinator takes note of it."""
        held.phase = Phase.ENDED
        lane = self.lanes[held.lane]
        lane.remove(key)
        if not lane:
            del self.lanes[held.lane]
        self._ended_in[held.lane] = done = self._ended_in.get(held.lane, 0) + 1
        self._is_short = self._is_short or done >= len(lane)
        self._report(report)

    def _report(self, report: Report) -> None:
        self.outbox[report.key] = report
        self.fresh.append(report)

    def _may_be_given_back(self, held: Held) -> bool:
        """One that waits for its lane may run elsewhere; a member of a gang stands where its gang needs it."""
        return held.phase == Phase.QUEUED and not held.is_member
