"""Many seeds: whatever goes wrong, every promise is kept, and the fences are seen to hold.

`scripts/simulate --seeds 5000` runs more of them, and says how often each thing happened.
"""

from __future__ import annotations

import pytest

from phalanx.sim.report import describe_failure
from phalanx.sim.trial import run
from tests.simulation.seeds import SEEDS, check, chunks


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seeds", chunks(), ids=str)
def test_every_promise_is_kept(seeds: range):
    check(seeds)


@pytest.mark.timeout(300)
def test_without_faults_nothing_is_lost_and_nobody_is_replaced():
    for seed in range(SEEDS, SEEDS + 10):
        result = run(seed, faults=[])
        assert result.is_good, describe_failure(result, [])
        assert (result.counts["epochs"], result.counts["fenced append"]) == (1, 0)
