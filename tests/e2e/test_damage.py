"""A coordinator over a damaged log: it stays up, says why it serves nothing, and continues when it is repaired."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.errors import Unavailable
from tests.contract.backends import SqliteBackend
from tests.contract.logs import Lived
from tests.support.real_cluster import RealCluster
from tests.support.waiting import wait_until


def test_a_damaged_log_is_refused_named_and_repaired_while_the_coordinator_waits(tmp_path: Path) -> None:
    lived, cluster = Lived(), RealCluster(tmp_path)
    damaged = asyncio.run(_prepared(tmp_path / "coordinator" / "phalanx.db", lived))
    try:
        cluster.start_coordinator()
        log = tmp_path / "coordinator.log"
        wait_until(lambda: "the log cannot be trusted" in log.read_text(), 20.0, "it says what is wrong")
        assert damaged in log.read_text(), "and names the job"
        wait_until(lambda: cluster.status_of("coordinator", "/readyz") == 503, 20.0, "it answers, with no")
        asked = cluster.clients["coordinator"]
        for question in (asked.ready, asked.jobs, lambda: asked.submit(command=["/bin/true"])):
            with pytest.raises(Unavailable, match="the log has a hole") as told:
                question()
            assert told.value.reason == "StoreDamaged"
            assert "phalanx store repair" in told.value.hint
        _repair(tmp_path)
        wait_until(cluster.is_ready, 20.0, "it goes on by itself")
        assert "Held" in _reasons(cluster, damaged)
        assert "damaged record" in (cluster.client.job(damaged).held or "")
        cluster.client.release(damaged)
        assert "Held" not in _reasons(cluster, damaged)
        assert cluster.client.job(damaged).held is None
    finally:
        cluster.stop()


def _reasons(cluster: RealCluster, job: str) -> set[str]:
    why = cluster.client.why(job)
    return {why.dominant.code, *(each.code for each in why.others)}


async def _prepared(path: Path, lived: Lived) -> str:
    """A log that has lost the last end of a job; returns the job."""
    path.parent.mkdir()
    backend = SqliteBackend(path)
    await lived.keep(await backend.store())
    job = next(job.id for job in lived.jobs if job.name == "job-11")
    end = [batch for batch in lived.batches() if b"AttemptEnded" in batch.body and job in batch.subjects][-1]
    await backend.flip("log", str(end.revision))
    await backend.close()
    return job


def _repair(folder: Path) -> None:
    where = {"PHALANX_STATE_DIR": str(folder), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    command = [sys.executable, "-m", "phalanx", "store", "repair", "--hold"]
    subprocess.run(command, env=where, check=True, capture_output=True)
