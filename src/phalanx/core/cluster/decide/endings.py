"""What the end of attempts leads to: for the task, for its gang, for its whole job.

Retries are charged only for what a task did itself; what befell its node has a limit of its own. A member that
ends at the barrier recalls its formation. A job may have its tasks restart and end as one (`Restart`, `Success`).
"""

from __future__ import annotations

from msgspec import structs

from phalanx.core.cluster.decide.merging import TOO_LARGE, all_alone, merged_ended, split
from phalanx.core.cluster.decision import answers_for_several
from phalanx.core.cluster.events import AttemptEnded, Event, GangRecalled, JobRestarted, JobSettled
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.units import Attempt
from phalanx.core.model.job import JobId, Rule
from phalanx.core.model.orders import STATUSES, UNCHARGED, Exit, Status, Why
from phalanx.core.model.patterns import TEXT_MAX, matching
from phalanx.core.model.task_results import PartResult

NO_RESTART_LEFT = "no restart is left of"  # and the limit: how a job says why it failed
NOT_RETRIED = frozenset({Why.TIMEOUT, Why.REFUSED, Why.STUCK, Why.NO_INPUT})
"""Trying again would only repeat these: the limit, the missing program and the folder stay as they are."""
NO_LOSS = frozenset({Why.RETURNED, Why.EVICTED, Why.RECALLED, Why.RESTARTED, Why.EXHAUSTED})
"""Ends that we asked for ourselves, and starts for which a node had no room: nothing was lost with them."""


class Endings:
    """Events that follow from attempts ending in one decision. What concerns a whole job is said once."""

    def __init__(self, state: ClusterState, now: float, cause: str) -> None:
        self.events: list[Event] = []
        self._state = state
        self._now = now
        self._cause = cause
        # Jobs that this decision recalls, restarts or settles; of those that restart, who starts anew.
        self._spoken: dict[JobId, str] = {}
        self._settled: dict[JobId, Status] = {}  # of those, the settled ones: what their other tasks become

    def add(self, attempt: Attempt, exit: Exit) -> None:
        """One attempt has ended."""
        job = self._state.jobs[attempt.key[0]]
        parts: dict[JobId, PartResult] = {}
        if attempt.merged or answers_for_several(job.job):
            exit, parts = split(exit)
        status = self._settled.get(job.job.id, STATUSES[job.status[attempt.key[1]]])
        if status.is_final:  # cancelled or settled meanwhile: the end only frees what it held
            self._end(attempt, exit, status)
        elif attempt.ending in (Why.RECALLED, Why.RESTARTED):  # its life is over: how it ended says nothing
            self._end(attempt, exit)
        elif (
            exit.why == Why.NONE
            and exit.code == 0
            and attempt.merged
            and exit.result_sha256
            and not exit.is_own
        ):
            # A runner of an older version has put the whole answer into the place for files.
            self._end(attempt, structs.replace(exit, result_bytes=0, result_sha256=""), then=TOO_LARGE)
            self.events.append(all_alone(self._state, attempt, self._now))
            return
        elif exit.why == Why.NONE and exit.code == 0:
            self._succeeded(job, attempt, exit)
        elif exit.why in UNCHARGED:
            self._befallen(job, attempt, exit)
        else:
            self._failed(job, attempt, exit)
        last = self.events[-1]
        ended = last.status if isinstance(last, AttemptEnded) else Status.PENDING
        if attempt.merged and (others := merged_ended(self._state, attempt, exit, ended, parts, self._now)):
            self.events.append(others)
        if ended != Status.PENDING and is_all_done(job, attempt.key[1], ended == Status.RUNNING):
            self._settle(job, outcome_of_others(job, ended), "all that is left of it has done its work")

    def _succeeded(self, job: JobState, attempt: Attempt, exit: Exit) -> None:
        # A task that may have to run again for the others' sake is Completed only when the whole job is.
        self._end(attempt, exit, Status.RUNNING if job.restarts_whole else Status.COMPLETED)
        if _has_done_its_work(job, attempt):
            self._settle(job, Status.COMPLETED, "it has done its work")

    def _befallen(self, job: JobState, attempt: Attempt, exit: Exit) -> None:
        """Not the task's doing: its node, its gang or somebody more urgent."""
        loss = exit.why not in NO_LOSS
        position = attempt.key[1]
        if exit.why in (Why.RETURNED, Why.RECALLED, Why.RESTARTED):
            self._end(attempt, exit)
        elif not attempt.released:
            self._end(attempt, exit, loss=loss)
            self._recall(job, f"{job.job.task_id(position)} ended before all were ready: {_said(exit)}")
        elif job.restarts_whole and not _can_be_spared(job, attempt):
            self._restart(job, attempt, exit, job.job.restart.counts_evictions, loss)
        elif (
            loss and job.job.vps is not None
        ):  # it waits for the node with its files, however often that is lost
            wait_s = backoff_s(self._state, job.losses.get(position, 0) + 1)
            self._end(attempt, exit, wait_s=wait_s, loss=True)
        elif exit.why == Why.UNCONFIRMED and job.groups[attempt.group].group.request.target is not None:
            self._for_good(job, attempt, exit, loss=True)  # it asked for this node and no other
        elif job.job.restart.counts_evictions:
            self._retry_or_fail(job, attempt, exit)
        elif loss and job.losses.get(position, 0) + 1 > self._state.rules.loss_limit:
            self._for_good(job, attempt, exit, loss=True)
        elif exit.why == Why.EXHAUSTED:  # what fills a node with processes lasts a while
            self._end(attempt, exit, wait_s=backoff_s(self._state, attempt.key[2]))
        else:
            self._end(attempt, exit, loss=loss)

    def _failed(self, job: JobState, attempt: Attempt, exit: Exit) -> None:
        has_files = job.job.vps is not None and job.first_started_at is not None  # of its user, on its node
        if exit.why in NOT_RETRIED and not has_files:
            self._for_good(job, attempt, exit)
        else:
            self._retry_or_fail(job, attempt, exit)
        if not attempt.released:
            task = job.job.task_id(attempt.key[1])
            self._recall(job, f"{task} ended before all were ready: {_said(exit)}")

    def _retry_or_fail(self, job: JobState, attempt: Attempt, exit: Exit) -> None:
        position = attempt.key[1]
        own = job.charged.get(position, 0) + 1
        used = sum(job.charged.values()) + 1 if job.job.restart.shared else own
        if used > job.job.max_retries:
            self._for_good(job, attempt, exit)
            return
        self._end(attempt, exit, wait_s=backoff_s(self._state, own), charged=True)

    def _for_good(self, job: JobState, attempt: Attempt, exit: Exit, loss: bool = False) -> None:
        """The task's own retries are used up: its job says what that means."""
        rule = _matching(job, attempt, exit)
        restart = job.job.restart
        if rule is not None and rule.action != "fail":
            counted, replica = not rule.action.endswith("-uncounted"), "replica" in rule.action
            self._restart(job, attempt, exit, counted, replica=replica)
        elif rule is None and restart.whole and exit.why not in NOT_RETRIED:
            self._restart(job, attempt, exit, counted=True)
        else:
            self._end(attempt, exit, Status.FAILED, charged=not loss, loss=loss)
            fails_job = rule is not None or restart.whole or restart.fails_job
            if fails_job or _breaks_the_gang(job, attempt) or _is_awaited(job, attempt):
                text = f"{job.job.task_id(attempt.key[1])} failed: {_said(exit)}"
                self._settle(job, Status.FAILED, text, attempt.key[1])

    def _restart(
        self,
        job: JobState,
        attempt: Attempt,
        exit: Exit,
        counted: bool,
        loss: bool = False,
        replica: bool = False,
    ) -> None:
        """The attempt has ended; tasks of its job start anew or, if they did so too often, the job fails."""
        who = "the tasks of its replica start anew" if replica else "all tasks start anew"
        if job.restarting or job.job.id in self._spoken:
            then = who if job.restarting else self._spoken[job.job.id]
            self._end(attempt, exit, loss=loss, then=then)
            return
        if (no := self._no_restart(job, counted, loss)) is not None:
            task = job.job.task_id(attempt.key[1])
            text = f"{no}; {task}: {_said(exit)}"
            self._end(attempt, exit, loss=loss, then=no)
            self._settle(job, Status.FAILED, text, attempt.key[1])
            return
        number = f"{job.restarts + 1} of {job.job.restart.limit}" if counted else "not counted"
        self._end(attempt, exit, loss=loss, then=f"{who}, {number}")
        again = job.restarts + job.setbacks + 1
        positions = _replica(job, attempt) if replica else None
        self._say(
            JobRestarted(
                at=self._now,
                cause=self._cause,
                job=job.job.id,
                counted=counted,
                retry_at=self._now + backoff_s(self._state, again),
                positions=positions,
            ),
            who,
        )

    def _no_restart(self, job: JobState, counted: bool, loss: bool) -> str | None:
        """Why its tasks do not start anew once more, or None if they do."""
        limit = job.job.restart.limit
        if counted and job.restarts >= limit:
            return f"{NO_RESTART_LEFT} {limit}"
        if loss and not counted and job.setbacks >= self._state.rules.loss_limit:
            return f"lost its nodes {'once' if job.setbacks == 1 else f'{job.setbacks} times'}"
        return None

    def _recall(self, job: JobState, text: str) -> None:
        strict = job.job.gang is None or job.job.gang.strict or job.satisfied
        if job.forming is not None and strict and job.job.id not in self._spoken:
            self._say(recalled(self._state, job, self._now, self._cause, text))

    def _settle(self, job: JobState, status: Status, text: str, culprit: int | None = None) -> None:
        if job.job.id not in self._spoken:
            settled = JobSettled(
                at=self._now, cause=self._cause, job=job.job.id, status=status, text=text, culprit=culprit
            )
            self._say(settled)

    def _say(self, event: GangRecalled | JobRestarted | JobSettled, words: str = "") -> None:
        """What concerns a whole job is said once; `words` are for the other attempts that end with it."""
        self._spoken[event.job] = words
        if isinstance(event, JobSettled):
            others = Status.CANCELLED if event.status == Status.COMPLETED else Status.FAILED
            self._settled[event.job] = others
        self.events.append(event)

    def _end(
        self,
        attempt: Attempt,
        exit: Exit,
        status: Status = Status.PENDING,
        wait_s: float = 0.0,
        charged: bool = False,
        loss: bool = False,
        then: str = "",
    ) -> None:
        """The task becomes this; if it is to be placed again, so much later."""
        self.events.append(
            AttemptEnded(
                at=self._now,
                cause=self._cause,
                key=attempt.key,
                exit=exit,
                status=status,
                retry_at=self._now + wait_s if status == Status.PENDING else None,
                charged=charged,
                loss=loss,
                fault=fault_of(attempt, exit),
                then=then,
            )
        )


def fault_of(attempt: Attempt, exit: Exit) -> bool | None:
    """What an end says of its node: it failed there, it did well, or nothing."""
    if attempt.ending is not None or exit.why in UNCHARGED or exit.why == Why.CANCELLED:
        return True if exit.of_node and attempt.ending is None else None
    return None if exit.of_user else exit.why != Why.NONE or exit.code != 0


def recalled(state: ClusterState, job: JobState, now: float, cause: str, text: str) -> GangRecalled:
    """The event by which a formation gives up; after the first time it waits a little before it tries again."""
    assert job.forming is not None
    retry_at = now + backoff_s(state, job.recalls + 1)
    number = job.forming.number
    return GangRecalled(at=now, cause=cause, job=job.job.id, formation=number, retry_at=retry_at, text=text)


def is_all_done(job: JobState, position: int, is_done: bool = False) -> bool:
    """Whether a task that ended was the last that those who have done their part had to wait for."""
    others = len(job.done) - (position in job.done)
    unfinished = sum(job.counts[:3]) - (job.status[position] < Status.COMPLETED)
    return unfinished == others and (others > 0 or is_done)


def outcome_of_others(job: JobState, ended: Status) -> Status:
    """What a job is whose last task ended so, when all others have ended or done their work."""
    if ended == Status.FAILED or job.counts[Status.FAILED]:
        return Status.FAILED
    is_whole = ended != Status.CANCELLED and not job.counts[Status.CANCELLED]
    return Status.COMPLETED if is_whole or job.gang is not None else Status.CANCELLED


def backoff_s(state: ClusterState, failures: int) -> float:
    """The first retry is at once; then 1, 2, 4, … seconds up to the limit."""
    if failures <= 1:
        return 0.0
    return min(state.rules.backoff_max_s, state.rules.backoff_s * 2.0 ** min(failures - 2, 30))


def _matching(job: JobState, attempt: Attempt, exit: Exit) -> Rule | None:
    """The first rule that speaks about this failure."""
    group = job.groups[attempt.group].group.name
    said = matching(job.job.restart.patterns, exit.message[:TEXT_MAX]) if job.job.restart.rules else ()
    at = 0  # where the rule's patterns begin among those of the job
    for rule in job.job.restart.rules:
        first, at = at, at + len(rule.patterns)
        if rule.groups and group not in rule.groups:
            continue
        if rule.reasons and exit.why.word not in rule.reasons:
            continue
        if rule.patterns and not any(number in said for number in range(first, at)):
            continue
        return rule
    return None


def _can_be_spared(job: JobState, attempt: Attempt) -> bool:
    """Whether the gang keeps the members it needs without this one, so that only a surplus is gone."""
    if job.gang is None or not job.satisfied or attempt.ending != Why.EVICTED:
        return False
    group = job.groups[attempt.group]
    staying = job.gang.staying()[attempt.group]  # those being stopped are not counted, this one among them
    return staying + job.done_in(group) >= group.group.needed


def _breaks_the_gang(job: JobState, attempt: Attempt) -> bool:
    """Whether too few tasks of its group are left for the gang ever to be whole again."""
    group = job.groups[attempt.group]
    return job.gang is not None and job.left_in(group) - 1 < group.group.needed


def _is_awaited(job: JobState, attempt: Attempt) -> bool:
    """Whether others begin only once its group has completed, which now it never will."""
    name = job.groups[attempt.group].group.name
    return any((name, "completed") in group.group.after for group in job.groups)


def _has_done_its_work(job: JobState, attempt: Attempt) -> bool:
    """Whether, with this task, the job as a whole is Completed though some of its tasks are not."""
    success = job.job.success
    if success.any:
        return not success.groups or job.groups[attempt.group].group.name in success.groups
    if job.gang is not None and job.satisfied and not success.groups:
        return len(job.live) == 1 and all(
            _well(job, n, attempt) >= g.needed for n, g in enumerate(job.job.groups)
        )
    if not success.groups and not job.restarts_whole:
        return False  # the tasks end one by one, and the job with the last of them
    return all(
        _well(job, number, attempt) == group.tasks
        for number, group in enumerate(job.job.groups)
        if not success.groups or group.name in success.groups
    )


def _well(job: JobState, number: int, attempt: Attempt) -> int:
    """How many tasks of a group have ended well, counting the one that just did."""
    return job.well_in(job.groups[number]) + (attempt.group == number)


def _replica(job: JobState, attempt: Attempt) -> tuple[int, ...]:
    group = job.groups[attempt.group]
    first = group.first + group.replica(attempt.key[1]) * group.group.completions
    return tuple(range(first, first + group.group.completions))


def _said(exit: Exit) -> str:
    return exit.message.rstrip(".") or exit.why.word
