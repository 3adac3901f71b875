"""The columns of one job: which task is next, and what is remembered of each."""

from __future__ import annotations

from phalanx.core.cluster.jobs import DETAILS_MAX, EARLIER_MAX, JobState
from phalanx.core.cluster.units import Attempt
from phalanx.core.model.orders import Exit, Status, Why
from phalanx.core.model.resources import Grant
from tests.support.builders import a_job


def a_state(array: str) -> JobState:
    return JobState(a_job(array=array), 1, [0] * 6)


def begin(state: JobState, *positions: int) -> None:
    for position in positions:
        number = state.attempts[position] + 1
        state.begin(Attempt((state.job.id, position, number), "n1", 1, Grant(1, 0), 0.0), 0)


def fail(state: JobState, position: int) -> None:
    state.leave(state.live[position])
    state.move(position, Status.PENDING)
    state.wait_again(position)


def test_those_to_be_tried_again_go_before_those_never_tried() -> None:
    state = a_state("1-9")
    begin(state, 0, 1, 2)
    fail(state, 2)
    fail(state, 0)
    assert list(state.groups[0].ready(4)) == [0, 2, 3, 4]


def test_the_limit_counts_those_that_live() -> None:
    state = a_state("1-9%2")
    assert list(state.groups[0].ready(9)) == [0, 1]
    begin(state, 0)
    assert list(state.groups[0].ready(9)) == [1]
    begin(state, 1)
    assert list(state.groups[0].ready(9)) == []
    assert not state.groups[0].has_ready


def test_a_task_that_is_cancelled_before_its_turn_is_passed_over() -> None:
    state = a_state("1-4")
    state.move(1, Status.CANCELLED)
    state.drop_ready(1)
    assert list(state.groups[0].ready(9)) == [0, 2, 3]
    begin(state, 0, 2)
    assert list(state.groups[0].ready(9)) == [3]


def test_a_task_in_backoff_is_not_ready() -> None:
    state = a_state("1-2")
    begin(state, 0, 1)
    state.leave(state.live[0])
    state.move(0, Status.PENDING)
    state.delayed[0] = 5.0
    assert list(state.groups[0].ready(9)) == []
    state.wait_again(0)
    assert list(state.groups[0].ready(9)) == [0]


def test_a_job_is_over_when_every_task_has_ended_for_good() -> None:
    state = a_state("1-2")
    over = []
    for position in (0, 1):
        state.move(position, Status.CANCELLED)
        over.append(state.is_over)
    assert over == [False, True]
    assert state.totals == [-2, 0, 0, 0, 0, 2]


def test_how_long_tasks_take_is_known_after_a_few_and_follows_the_newest() -> None:
    state = a_state("1-40")
    for position in range(4):
        assert state.groups[0].typical_run_s is None
        state.record(position, Exit(Why.NONE, 0, 10.0, 12.0))
    assert state.groups[0].typical_run_s == 2.0
    for position in range(4, 40):
        state.record(position, Exit(Why.NONE, 0, 10.0, 10.5))
    assert state.groups[0].typical_run_s is not None
    assert abs(state.groups[0].typical_run_s - 0.5) < 0.01


def test_what_is_remembered_of_failures_is_bounded() -> None:
    state = a_state(f"1-{DETAILS_MAX + 50}")
    for position in range(DETAILS_MAX + 50):
        state.record(position, Exit(Why.EXITED, 1, message="no"))
    assert len(state.details) == DETAILS_MAX
    state.record(0, Exit(Why.EXITED, 1, message="newer"))
    assert state.details[0] == ("newer", "")


def test_any_exit_code_is_kept_as_well_as_two_bytes_can() -> None:
    state = a_state("1-5")
    for position, code in enumerate((0, -9, 255, 1 << 31, None)):
        state.record(position, Exit(Why.EXITED, code))
    assert [state.exit_code(position) for position in range(5)] == [0, -9, 255, 32_000, None]


def test_a_million_tasks_cost_a_few_bytes_each() -> None:
    state = a_state("1-1000000")
    columns = (state.status, state.why, state.attempts.tobytes(), state.code.tobytes())
    assert sum(map(len, columns)) <= 8_000_000
    assert list(state.groups[0].ready(3)) == [0, 1, 2]


def test_the_nodes_of_former_attempts_are_kept_of_some_tasks_and_the_newest_attempts() -> None:
    state = a_state(f"1-{DETAILS_MAX + 1}")
    for _ in range(EARLIER_MAX + 3):
        begin(state, 0)
        fail(state, 0)
    newest = state.attempts[0]
    known = [number for number in range(1, newest + 1) if state.node_number(0, number) is not None]
    assert known == list(range(newest - EARLIER_MAX, newest + 1))
    for position in range(1, DETAILS_MAX + 1):
        begin(state, position)
        fail(state, position)
        begin(state, position)
    assert len(state.earlier) == DETAILS_MAX
    assert state.node_number(DETAILS_MAX, 1) is None
    assert state.node_number(DETAILS_MAX, 2) == 0
