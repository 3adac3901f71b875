"""A drawing shows every state and every move, and the table under it explains each move."""

from __future__ import annotations

import re

import pytest

from docs.site import lifecycles


@pytest.mark.parametrize("name", lifecycles.LIVES)
def test_every_state_and_every_move_is_drawn(name: str):
    moves, drawing = lifecycles.LIVES[name], lifecycles.drawing(name)
    states = {state for move in moves for state in move if state}
    assert set(re.findall(r">([A-Z]\w+)</text>", drawing)) == states == set(lifecycles.GRID[name])
    assert [int(number) for number in re.findall(r">(\d+)</text>", drawing)] == list(range(1, len(moves) + 1))


@pytest.mark.parametrize("name", lifecycles.LIVES)
def test_the_table_has_every_move_with_its_sentence(name: str):
    table = lifecycles.table(name)
    assert all(f"| {why} |" in table for why in lifecycles.LIVES[name].values())
