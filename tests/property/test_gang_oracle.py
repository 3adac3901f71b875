"""Gangs against brute force: placed if and only if they fit, on the lowest layer, by every rule.

A few hundred seeds run here; `python -m tests.property.placement_cases --cases 20000` runs more.
"""

from __future__ import annotations

from collections import Counter

import pytest

from phalanx.core.explain.shortage import place_gang
from tests.property.placement_cases import a_case, tried
from tests.property.placement_laws import Trial
from tests.property.placement_stage import drawing

CHUNK = 100


@pytest.mark.parametrize("first", range(0, 700, CHUNK))
def test_gangs_are_placed_as_brute_force_says(first: int):
    for seed in range(first, first + CHUNK):
        complaints = Trial(a_case(seed), place_gang).complaints()
        assert complaints == [], drawing(a_case(seed))


def test_the_seeds_ask_every_question():
    seen: Counter[str] = Counter()
    for seed in range(150):
        assert Trial(a_case(seed), place_gang, seen=seen).complaints() == []
    for question in (
        "gangs placed",
        "gangs without room",
        "only the needed fit",
        *(f"stands in one {layer}" for layer in ("cluster", "spine", "block", "rack", "node")),
    ):
        assert seen[question] >= 3, question


@pytest.mark.parametrize(("seed", "crowded"), [(300262, False), (400408, True)])
def test_ranks_stay_together_where_members_of_several_requests_are_packed(seed: int, crowded: bool):
    assert tried(a_case(seed, crowded, knotty=crowded), crowded, Counter()) == []
