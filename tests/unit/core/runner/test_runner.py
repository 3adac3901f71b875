"""The runner's own state machine, by example."""

from __future__ import annotations

from phalanx.core.model.job import Command
from phalanx.core.model.orders import (
    UNCHARGED,
    AttemptKey,
    Brief,
    Dismiss,
    Disposition,
    Ended,
    Exit,
    Phase,
    Report,
    Start,
    Started,
    Stop,
    Why,
)
from phalanx.core.model.resources import Grant
from phalanx.core.runner.attempts import ProcessEnd
from phalanx.core.runner.effects import ForgetBrief, Halt, Retract, Spawn
from phalanx.core.runner.state import RunnerState

KEY = ("j1", 0, 1)
NEXT = ("j1", 1, 1)


def a_brief(**fields: object) -> Brief:
    given = {"time_limit_s": None, "grace_s": 5.0} | fields
    return Brief("j1", 0, Command(("/bin/true",)), "", "default", "j1", 2, None, **given)  # type: ignore[arg-type]


def a_start(key: AttemptKey = KEY, lane: int = 1) -> Start:
    return Start(key, lane, Grant(1, 0), None, 0)


def an_end(code: int | None = 0, signal: int | None = None, **how: object) -> ProcessEnd:
    given = {"oom": False, "reason": None} | how
    return ProcessEnd(code, signal, started_at=11.0, ended_at=12.0, **given)  # type: ignore[arg-type]


def a_runner(**brief: object) -> RunnerState:
    """A runner with a lease until 30 that has been ordered to start one attempt, at 10."""
    runner = RunnerState()
    runner.welcome(1, 30.0)
    runner.order(1, a_brief(**brief), 10.0)
    runner.order(1, a_start(), 10.0)
    return runner


def exit_of(report: Report) -> Exit:
    assert isinstance(report, Ended)
    return report.exit


def test_a_process_from_start_to_the_end_of_its_memory() -> None:
    runner = a_runner()
    assert runner.listing() == [(KEY, Phase.QUEUED)]
    runner.process_started(KEY, 11.0)
    assert runner.take_fresh() == [Started(KEY, 11.0)]
    assert runner.listing() == [(KEY, Phase.RUNNING)]
    runner.process_ended(KEY, an_end())
    assert runner.listing() == [(KEY, Phase.ENDED)]
    assert exit_of(runner.take_fresh()[0]) == Exit(Why.NONE, 0, 11.0, 12.0)
    runner.disposed(KEY, Disposition.ACCEPTED)
    assert (runner.listing(), runner.outbox) == ([], {})


def test_a_start_needs_no_word_when_its_end_is_told_with_it() -> None:
    runner = a_runner()
    runner.process_started(KEY, 11.0)
    runner.process_ended(KEY, an_end())
    assert [type(report) for report in runner.take_fresh()] == [Ended]


def test_a_start_in_a_lane_with_more_to_do_waits_for_its_end() -> None:
    runner, second = a_runner(), (KEY[0], KEY[1] + 1, 1)
    runner.order(1, a_start(second), 10.0)
    runner.process_started(KEY, 11.0)
    assert runner.take_fresh(everything=False) == []
    assert runner.take_fresh() == [Started(KEY, 11.0)], "whoever asks for everything gets it"
    runner.process_ended(KEY, an_end())
    runner.process_started(second, 12.0)
    told = runner.take_fresh(everything=False)
    assert [type(report) for report in told] == [Ended, Started], "nothing else waits in the lane"


def test_how_a_process_ended_is_judged() -> None:
    def judged(end: ProcessEnd, stop: Why | None = None) -> tuple[Why, int | None]:
        runner = a_runner()
        runner.process_started(KEY, 11.0)
        if stop is not None:
            runner.order(1, Stop(KEY, stop, 1.0), 11.5)
        runner.process_ended(KEY, end)
        exit = exit_of(runner.outbox[KEY])
        return exit.why, exit.code

    assert judged(an_end(0)) == (Why.NONE, 0)
    assert judged(an_end(3)) == (Why.EXITED, 3)
    assert judged(an_end(None, 9)) == (Why.SIGNALLED, -9), "a plain SIGKILL is not out of memory"
    assert judged(an_end(None, 9, oom=True)) == (Why.OOM, -9)
    assert judged(an_end(None, 15), Why.CANCELLED) == (Why.CANCELLED, -15)
    assert judged(an_end(None, 9, reason="fenced")) == (Why.FENCED, -9)
    assert judged(an_end(None, None, reason="unknown")) == (Why.UNKNOWN, None)


def test_a_time_limit_stops_once_and_is_the_reason() -> None:
    runner = a_runner(time_limit_s=5.0, grace_s=2.0)
    runner.process_started(KEY, 11.0)
    assert runner.tick(15.9) == []
    assert runner.tick(16.0) == [Halt(KEY, 2.0)]
    assert runner.tick(17.0) == []
    runner.process_ended(KEY, an_end(None, 15))
    assert exit_of(runner.outbox[KEY]).why == Why.TIMEOUT


def test_another_time_limit_counts_from_the_start_of_what_runs() -> None:
    runner = a_runner(time_limit_s=5.0, grace_s=2.0)
    runner.process_started(KEY, 11.0)
    runner.order(1, a_brief(time_limit_s=50.0), 12.0)
    assert runner.tick(16.0) == []
    runner.order(1, a_brief(), 17.0)
    assert runner.tick(25.0) == []
    runner.order(1, a_brief(time_limit_s=3.0, grace_s=1.0), 26.0)
    assert runner.tick(26.0) == [Halt(KEY, 1.0)]


def test_a_time_limit_survives_the_runner() -> None:
    runner = RunnerState()
    runner.adopt(KEY, 1, None, 11.0)
    runner.welcome(1, 60.0)
    runner.order(1, a_brief(time_limit_s=5.0), 20.0)
    assert [type(effect) for effect in runner.tick(20.0)] == [Halt]


def test_what_ended_while_no_runner_was_there_is_told_by_the_next() -> None:
    runner = RunnerState()
    runner.adopt(KEY, 1, an_end(7), 11.0)
    runner.welcome(1, 60.0)
    assert exit_of(runner.take_fresh()[0]).code == 7


def test_a_stop_for_what_is_not_there_is_answered_and_forbids_a_later_start() -> None:
    runner = RunnerState()
    runner.welcome(1, 30.0)
    assert runner.order(1, Stop(KEY, Why.CANCELLED, 1.0), 10.0) == []
    assert exit_of(runner.outbox[KEY]).message == "it was not running"
    runner.disposed(KEY, Disposition.ACCEPTED)
    runner.order(1, a_brief(), 10.0)
    assert runner.order(1, a_start(), 10.0) == []
    assert exit_of(runner.outbox[KEY]).why == Why.CANCELLED


def test_an_end_is_told_until_it_is_answered() -> None:
    runner = a_runner()
    runner.process_ended(KEY, an_end())
    runner.take_fresh()
    runner.disposed(KEY, Disposition.STALE_EPOCH)
    runner.resend()
    assert [report.key for report in runner.take_fresh()] == [KEY]
    assert runner.welcome(2, 40.0)
    assert [report.key for report in runner.take_fresh()] == [KEY]


def test_those_queued_behind_a_slow_one_are_taken_back() -> None:
    runner = a_runner()
    assert runner.order(1, a_start(NEXT), 10.0) == [Spawn(a_start(NEXT), a_brief(), not_after=30.0)]
    runner.process_started(KEY, 11.0)
    assert runner.tick(11.5) == []
    assert runner.tick(12.5) == [Retract(NEXT)]
    runner.process_refused(NEXT, "retracted", "it had not started", 12.5)
    assert [type(report).__name__ for report in runner.take_fresh()] == ["Started", "Returned"]


def test_nothing_starts_without_a_lease_or_a_brief() -> None:
    runner = RunnerState()
    runner.welcome(1, 30.0)
    assert runner.order(1, a_start(), 10.0) == []
    assert "its brief" in exit_of(runner.outbox[KEY]).message
    runner.order(1, a_brief(), 31.0)
    assert runner.order(1, a_start(NEXT), 31.0) == []
    assert "the lease was over" in exit_of(runner.outbox[NEXT]).message


def test_each_group_has_a_brief_of_its_own() -> None:
    runner = a_runner()
    other = Start(NEXT, 2, Grant(1, 0), None, 0, group=1)
    runner.order(1, Brief("j1", 1, Command(("/bin/echo",)), "", "default", "j1", 2, None, 5.0, None), 10.0)
    (spawn,) = runner.order(1, other, 10.0)
    assert isinstance(spawn, Spawn)
    assert spawn.brief.command.argv == ("/bin/echo",)


def test_briefs_go_when_the_job_is_over_and_nothing_of_it_is_held() -> None:
    runner = a_runner()
    assert runner.order(1, Dismiss("j1"), 10.0) == []
    runner.process_ended(KEY, an_end())
    assert runner.disposed(KEY, Disposition.ACCEPTED)[1:] == [ForgetBrief("j1", 0)]


def test_what_waited_in_a_lane_is_sent_to_the_next_keeper() -> None:
    runner = a_runner()
    assert runner.keeper_lost(11.0, (), [*runner.held]) == [Spawn(a_start(), a_brief(), not_after=30.0)]


def test_what_was_being_stopped_when_the_keeper_died_is_answered() -> None:
    runner = a_runner()
    runner.order(1, Stop(KEY, Why.CANCELLED, 1.0), 10.5)
    assert runner.keeper_lost(11.0, (), [*runner.held]) == []
    assert exit_of(runner.outbox[KEY]).why == Why.CANCELLED


def test_what_an_earlier_life_had_sent_is_lost_with_the_keeper() -> None:
    runner = RunnerState()
    runner.adopt(KEY, 1, None, None)
    assert runner.keeper_lost(11.0, (), [*runner.held]) == []
    assert exit_of(runner.outbox[KEY]).why == Why.LOST


def test_what_ran_and_is_unknown_to_the_next_keeper_is_over_and_nobody_is_charged() -> None:
    runner = a_runner()
    runner.process_started(KEY, 10.5)
    assert runner.keeper_lost(11.0, {KEY}, [*runner.held]) == []
    assert runner.outbox == {}
    assert runner.keeper_lost(12.0, (), [*runner.held]) == []
    exit = exit_of(runner.outbox[KEY])
    assert (exit.why, exit.started_at, exit.ended_at) == (Why.UNKNOWN, 10.5, 12.0)
    assert exit.why in UNCHARGED
    assert runner.lanes == {}


def test_one_that_ran_and_that_its_keeper_does_not_know_was_not_stopped_before_it_started() -> None:
    runner = a_runner()
    runner.process_started(KEY, 10.5)
    runner.order(1, Stop(KEY, Why.CANCELLED, 1.0), 11.0)
    runner.process_refused(KEY, "stopped", "it was stopped before it could start", 12.0)
    exit = exit_of(runner.outbox[KEY])
    assert (exit.started_at, exit.message) == (10.5, "the process is gone and its exit code is unknown")


def test_the_message_of_an_end_has_the_limit_and_what_was_used():
    said = []
    for end in (
        an_end(None, 9, oom=True, memory_limit_bytes=64 << 20, memory_peak_bytes=63 << 20),
        an_end(1, forks_refused=2),
        an_end(0, forks_refused=1),
    ):
        runner = a_runner()
        runner.process_started(KEY, 11.0)
        runner.process_ended(KEY, end)
        said.append(exit_of(runner.outbox[KEY]).message)
    assert "64 MiB" in said[0]
    assert "63 MiB" in said[0]
    assert said[1].endswith("could start no more (2 times)")
    assert said[2].endswith("could start no more (1 time)")
