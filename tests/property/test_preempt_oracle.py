"""Evictions against brute force: only when they let the whole unit in, none too many, no gang left in part.

A few hundred seeds run here; `python -m tests.property.placement_cases --cases 20000` runs more.
"""

from __future__ import annotations

from collections import Counter

import pytest

from phalanx.core.explain.evictions import make_room_or_why
from phalanx.core.explain.shortage import place_gang
from tests.property.placement_cases import a_case
from tests.property.placement_laws import Trial
from tests.property.placement_stage import drawing

CHUNK = 100


@pytest.mark.parametrize("first", range(0, 600, CHUNK))
def test_room_is_made_as_brute_force_says(first: int):
    for seed in range(first, first + CHUNK):
        complaints = Trial(a_case(seed, crowded=True), place_gang, make_room_or_why).complaints()
        assert complaints == [], drawing(a_case(seed, crowded=True))


def test_few_jobs_are_broken_beyond_the_fewest_possible():
    """Not promised to be the fewest in every case: nodes are chosen before victims. It must stay rare, and small."""
    seen: Counter[str] = Counter()
    for seed in range(150):
        trial = Trial(a_case(seed, crowded=True), place_gang, make_room_or_why, seen)
        trial.counts_best = True
        assert trial.complaints() == []
    assert seen["evictions compared with the best"] >= 30
    assert seen["jobs broken beyond the fewest: 0"] >= 0.8 * seen["evictions compared with the best"]
