"""A gang of sixteen in one rack: whatever runner is killed with -9, and whenever, all of it starts or none does."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.waiting import pause, wait_until

MEMBERS = 16
ROUNDS = int(os.environ.get("KILLS", "20"))  # `make soak` has 50
RACK = {f"n{number}": "cpus=4,ram=8GiB,labels=rack=r1" for number in range(1, 5)}
ELSEWHERE = {"n5": "cpus=4,ram=8GiB,labels=rack=r2"}


@pytest.mark.timeout(400)  # many rounds, each with a runner that restarts
def test_all_or_none_under_kills_of_members_runners(tmp_path: Path) -> None:
    dice = random.Random(3)
    marks = tmp_path / "marks"
    marks.mkdir()
    with a_real_cluster(tmp_path / "c", RACK | ELSEWHERE, heartbeat_s=0.5, lost_after_s=20.0) as cluster:
        met: Counter[str] = Counter()
        for _ in range(ROUNDS):
            # Each member leaves a mark that names its formation, and stays for a moment.
            said = f"touch {marks}/$PET_RDZV_ID.$PHALANX_RANK; exec sleep 0.2"
            id = cluster.client.gang(["/bin/sh", "-c", said], MEMBERS, gather=["rack:must"]).task_ids[0]
            # The moment of the fault is drawn, not waited for: most of them before or at the barrier.
            pause(dice.uniform(0.0, dice.choice((0.01, 0.02, 0.04, 0.2))))
            met[_phase(cluster, id)] += 1
            victims = dice.sample(sorted(RACK), k=dice.choice((1, 1, 2)))
            for name in victims:
                cluster.kill(name)
            for name in victims:
                cluster.start_runner(name)
            job = wait_until(lambda id=id: _ended(cluster, id), 40.0, f"{id} ended")  # type: ignore[misc]
            assert job == "Completed"
            _check_whole(marks, id)
        assert met["at the barrier"] > 0  # the faults met members before and after the release
        assert met["running"] > 0


def _check_whole(marks: Path, id: str) -> None:
    """Every formation that left a mark at all has left all of them, and the last one did."""
    ran = Counter(mark.name.rpartition(".")[0] for mark in marks.glob(f"{id}.*"))
    assert set(ran.values()) == {MEMBERS}, ran


def _phase(cluster: RealCluster, id: str) -> str:
    counts = cluster.client.job(id).counts
    if counts.completed:
        return "ending"
    if counts.running:
        return "running"
    return "at the barrier" if counts.assigned else "waiting"


def _ended(cluster: RealCluster, id: str) -> str | None:
    status = cluster.client.job(id).status
    return status if status in ("Completed", "Failed", "Cancelled") else None
