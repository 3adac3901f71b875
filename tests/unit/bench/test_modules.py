"""Every benchmark can be imported: they are run by hand, so a renamed module would be noticed months later."""

from __future__ import annotations

from importlib import import_module

import pytest

from bench.compare import ROOT

# Run with the packages of the schedulers that we compare with.
PEERS = {"call_peer", "dask_peer", "hyperqueue_peer", "prefect_peer", "ray_peer"}


@pytest.mark.parametrize("name", sorted({path.stem for path in (ROOT / "bench").glob("*.py")} - PEERS))
def test_a_benchmark_can_be_imported(name: str) -> None:
    import_module(f"bench.{name}")
