"""The table of moves: what is not in it is an error."""

from __future__ import annotations

from itertools import product

import pytest

from phalanx.core.cluster.jobs import MOVES, IllegalMove, check_move
from phalanx.core.model.orders import Status


def test_a_move_that_is_not_in_the_table_names_who_and_where() -> None:
    with pytest.raises(IllegalMove, match="task 3 of j1 cannot go from Completed to Running"):
        check_move("task 3 of j1", Status.COMPLETED, Status.RUNNING)


@pytest.mark.parametrize(("before", "after"), list(product(Status, Status)))
def test_exactly_the_moves_of_the_table_are_legal(before: Status, after: Status) -> None:
    if (before, after) in MOVES:
        check_move("it", before, after)
    else:
        with pytest.raises(IllegalMove):
            check_move("it", before, after)


def test_nothing_leads_out_of_a_final_status() -> None:
    assert not [before for before, _ in MOVES if before.is_final]


def test_every_status_can_be_reached_and_every_life_can_end() -> None:
    assert {after for _, after in MOVES} == set(Status)
    assert {before for before, after in MOVES if after.is_final} == {s for s in Status if not s.is_final}
