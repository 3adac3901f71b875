"""The seed is enough: the same one gives the same trace, in this process and in any other."""

from __future__ import annotations

import subprocess
import sys

import pytest

from phalanx.sim.trial import run

SEEDS = (1, 2, 5)  # on a modelled etcd, on SQLite, in memory

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_tells_the_same_story_twice(seed: int):
    first: list[str] = []
    second: list[str] = []
    one, other = run(seed, None, first.append), run(seed, None, second.append)
    assert first == second
    assert one.trace_hash == other.trace_hash


@pytest.mark.parametrize("seed", SEEDS)
def test_the_salt_of_hash_changes_nothing(seed: int):
    here = f"trace {run(seed).trace_hash},"
    for salt in ("1", "4242"):
        assert here in _simulate(salt, "--seed", str(seed))


def test_two_seeds_tell_two_stories():
    assert run(SEEDS[0]).trace_hash != run(SEEDS[1]).trace_hash


def _simulate(salt: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "phalanx.sim", *arguments]
    done = subprocess.run(
        command, env={"PYTHONHASHSEED": salt}, capture_output=True, text=True, check=True, timeout=240
    )
    return done.stdout
