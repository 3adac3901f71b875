"""Newcomers: a limited number, and of those who crowd in the oldest goes."""

from __future__ import annotations

from phalanx.api.newcomers import Newcomers


def test_the_oldest_of_the_address_that_has_most_goes():
    newcomers: Newcomers[int] = Newcomers(4)
    assert [newcomers.add("there", 1), *(newcomers.add("here", number) for number in (2, 3, 4))] == [None] * 4
    assert newcomers.add("here", 5) == 2
    assert newcomers.add("elsewhere", 6) == 3
    assert list(newcomers) == [1, 4, 5, 6]


def test_who_is_known_or_gone_is_no_longer_counted():
    newcomers: Newcomers[int] = Newcomers(2)
    newcomers.add("here", 1)
    newcomers.remove(1)
    newcomers.remove(1)
    assert newcomers.add("here", 2) is None
    assert newcomers.add("here", 3) is None
    assert len(newcomers) == 2 and 1 not in newcomers
