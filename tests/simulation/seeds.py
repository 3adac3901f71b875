"""The seeds of `make test`, in chunks that may go to any worker."""

from __future__ import annotations

from phalanx.sim.report import SeedReport, describe_failure
from phalanx.sim.trial import run

SEEDS = 500
CHUNK = 125
FENCED_SHARE_MIN = 0.3  # R2: a rig in which no stale report is ever refused proves nothing
SHARES_MIN = {"gang released": 0.7, "formation recalled": 0.1, "eviction for room": 0.2, "whole restart": 0.2}


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
