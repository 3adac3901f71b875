"""What each user may hold of the memory for calls."""

from __future__ import annotations

import pytest

from phalanx.coordinator.call_shares import BYTES_MAX, USER_BYTES_MAX, held_by_user, why_no_more

MIB = 1 << 20


def test_the_queues_of_a_user_count_together():
    assert held_by_user([("ada", 1), ("bob", 5), ("ada", 2)]) == {"ada": 3, "bob": 5}


@pytest.mark.parametrize(
    ("mine", "is_refused"), [(0, False), (USER_BYTES_MAX - 1, False), (USER_BYTES_MAX, True)]
)
def test_a_user_has_a_quarter(mine, is_refused):
    assert bool(why_no_more({"ada": mine, "bob": 1}, "ada")) == is_refused


def test_the_limit_is_named():
    assert why_no_more({"ada": 65 * MIB}, "ada") == (
        "user ada has 65.0 MiB of unfinished calls at the coordinator; the limit for one user is 64 MiB"
    )


def test_a_user_below_an_equal_part_is_served_when_others_have_taken_all():
    others = {f"u{number}": USER_BYTES_MAX - 1 for number in range(8)}
    assert sum(others.values()) > BYTES_MAX
    equal = BYTES_MAX // 9
    assert not why_no_more(others, "new")
    assert not why_no_more({**others, "new": equal - 1}, "new")
    assert "an equal part is 28.4 MiB" in why_no_more({**others, "new": equal + 1}, "new")
    assert why_no_more(others, "u1")
