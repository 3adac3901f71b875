"""Newcomers: a limited number, and of those who crowd in the oldest goes."""

from __future__ import annotations

from phalanx.api.server.unauthenticated import Unauthenticated


def test_the_oldest_of_the_address_that_has_most_goes():
    unauthenticated: Unauthenticated[int] = Unauthenticated(4)
    assert [
        unauthenticated.add("there", 1),
        *(unauthenticated.add("here", number) for number in (2, 3, 4)),
    ] == [None] * 4
    assert unauthenticated.add("here", 5) == 2
    assert unauthenticated.add("elsewhere", 6) == 3
    assert list(unauthenticated) == [1, 4, 5, 6]


def test_who_is_known_or_gone_is_no_longer_counted():
    unauthenticated: Unauthenticated[int] = Unauthenticated(2)
    unauthenticated.add("here", 1)
    unauthenticated.remove(1)
    unauthenticated.remove(1)
    assert unauthenticated.add("here", 2) is None
    assert unauthenticated.add("here", 3) is None
    assert len(unauthenticated) == 2 and 1 not in unauthenticated
