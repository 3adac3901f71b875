"""Many seeds, the second half, on the other worker."""

from __future__ import annotations

import pytest

from tests.simulation.seeds import check, chunks


@pytest.mark.timeout(600)
@pytest.mark.parametrize("seeds", chunks(1), ids=str)
def test_every_promise_is_kept(seeds: range):
    check(seeds)
