"""The table of moves: what is not in it is an error."""

from __future__ import annotations

from itertools import product

import pytest

from phalanx.core.cluster.jobs import MOVES, IllegalMove, JobState
from phalanx.core.model.orders import Status
from tests.support.builders import a_job


def job_with(status: Status) -> JobState:
    """A job of four tasks, the last of which is here."""
    job = JobState(a_job(id="j1", array="0-3"), 1, [0] * 6)
    job.status[3] = status
    return job


def test_a_move_that_is_not_in_the_table_names_who_and_where() -> None:
    with pytest.raises(IllegalMove, match="task 3 of j1 cannot go from Completed to Running"):
        job_with(Status.COMPLETED).move(3, Status.RUNNING)


@pytest.mark.parametrize(("before", "after"), list(product(Status, Status)))
def test_exactly_the_moves_of_the_table_are_legal(before: Status, after: Status) -> None:
    job = job_with(before)
    if (before, after) in MOVES:
        job.move(3, after)
        assert job.status[3] == after
    else:
        with pytest.raises(IllegalMove):
            job.move(3, after)


def test_nothing_leads_out_of_a_final_status() -> None:
    assert not [before for before, _ in MOVES if before.is_final]


def test_every_status_can_be_reached_and_every_life_can_end() -> None:
    assert {after for _, after in MOVES} == set(Status)
    assert {before for before, after in MOVES if after.is_final} == {s for s in Status if not s.is_final}
