"""The seeds of `make test`, in chunks that may go to any worker, and the seeds that must find a planted bug."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from phalanx.sim.report import SeedReport, describe_failure
from phalanx.sim.trial import run

FOUND = Path(__file__).with_name("found_seeds.json")  # the seed that found each planted bug
SEEDS = 100  # `make soak` goes on from here
CHUNK = 50
FENCED_SHARE_MIN = 0.3  # R2: a simulator in which no stale report is ever refused proves nothing
SHARES_MIN = {
    "gang released": 0.7, "formation recalled": 0.1, "eviction for room": 0.2, "whole restart": 0.2,
    "lane shared by stages": 0.1,
}  # fmt: skip


def chunks() -> list[range]:
    return [range(at, at + CHUNK) for at in range(0, SEEDS, CHUNK)]


def check(seeds: range) -> None:
    """Every promise is kept in each of these seeds, and the fences are seen to hold in a third of them."""
    report = SeedReport()
    for seed in seeds:
        report.add(run(seed))
    assert not report.failures, "\n".join(describe_failure(each, None) for each in report.failures)
    assert report.fenced_share >= FENCED_SHARE_MIN
    assert {what for what, least in SHARES_MIN.items() if report.share(what) < least} == set()


def must_find(checkers: set[str], within: int, faults: list[str] | None = None, *, begin: int = 0) -> None:
    """Some seed breaks a promise, and the first that does is seen by one of these checkers.

    `begin` skips seeds that are known to find nothing, to save their time; a stale one only costs some of it.
    """
    must_find_among(range(begin, begin + within), checkers, within, faults)


def must_find_among(
    seeds: Iterable[int], checkers: set[str], within: int, faults: list[str] | None = None
) -> None:
    """The same, of these seeds only. The one that found it the last time is asked first: that saves time."""
    test = os.environ["PYTEST_CURRENT_TEST"].partition(" ")[0].rpartition("/")[2]
    known: int | None = json.loads(FOUND.read_text()).get(test)
    if known is not None and run(known, faults).checker in checkers:
        return
    for seed in islice(seeds, within):
        if _finds(seed, checkers, faults):
            _note(test, seed)
            return
    raise AssertionError(f"no checker saw it in {within} seeds")


def _finds(seed: int, checkers: set[str], faults: list[str] | None) -> bool:
    result = run(seed, faults)
    assert result.is_good or result.checker in checkers, result.sentence
    return not result.is_good


def _note(test: str, seed: int) -> None:
    """Write down which seed found it, if told to: `NOTE_SEEDS=1 scripts/test tests/simulation -n 0`."""
    if "NOTE_SEEDS" in os.environ:
        found = json.loads(FOUND.read_text()) | {test: seed}
        FOUND.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
