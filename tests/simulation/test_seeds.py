"""Many seeds: whatever goes wrong, every promise is kept, and the fences are seen to hold.

`scripts/simulate --seeds 500` runs more of them, and says how often each thing happened.
"""

from __future__ import annotations

import pytest

from phalanx.sim.report import Report, describe_failure
from phalanx.sim.trial import run

SEEDS = 200
CHUNK = 25
FENCED_SHARE_MIN = 0.3  # R2: a rig in which nothing stale is ever refused proves nothing
SHARES_MIN = {"gang released": 0.7, "formation recalled": 0.1, "eviction for room": 0.2, "whole restart": 0.2}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_every_promise_is_kept(first: int):
    report = Report()
    for seed in range(first, first + CHUNK):
        report.add(run(seed))
    assert not report.failures, "\n".join(describe_failure(each, None) for each in report.failures)
    assert report.fenced_share >= FENCED_SHARE_MIN
    assert {what for what, least in SHARES_MIN.items() if report.share(what) < least} == set()


@pytest.mark.timeout(300)
def test_without_faults_nothing_is_lost_and_nobody_is_replaced():
    for seed in range(SEEDS, SEEDS + 10):
        result = run(seed, faults=[])
        assert result.is_good, describe_failure(result, [])
        assert (result.counts["epochs"], result.counts["fenced append"]) == (1, 0)
