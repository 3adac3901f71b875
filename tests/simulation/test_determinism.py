"""The seed is enough: the same one gives the same trace, in this process and in any other."""

from __future__ import annotations

import subprocess
import sys
from functools import cache

import pytest

from phalanx.sim.trial import run

SEEDS = (1, 2, 5)  # on a modelled etcd, on SQLite, in memory
SALT = "4242"  # that of the process that runs the tests is another: Python draws it

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_seed_tells_the_same_story_twice(seed: int):
    lines: list[str] = []
    again = run(seed, None, lines.append)
    assert (lines, again.trace_hash) == _story(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_salt_of_hash_changes_nothing(seed: int):
    assert f"trace {_story(seed)[1]}," in _simulate(SALT, "--seed", str(seed))


def test_two_seeds_tell_two_stories():
    assert _story(SEEDS[0]) != _story(SEEDS[1])


@cache
def _story(seed: int) -> tuple[list[str], str]:
    lines: list[str] = []
    result = run(seed, None, lines.append)
    return lines, result.trace_hash


def _simulate(salt: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "phalanx.sim", *arguments]
    done = subprocess.run(
        command, env={"PYTHONHASHSEED": salt}, capture_output=True, text=True, check=True, timeout=240
    )
    return done.stdout
