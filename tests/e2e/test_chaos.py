"""The chaos rig, for half a minute: whatever is killed, stopped, cut off or set, no promise is broken. And it can
fail.

`scripts/chaos --minutes 10` is the long run. Both use network namespaces where we are root, else proxies on loopback.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.chaos import careless
from tests.chaos.chaos_cluster import Shape
from tests.chaos.clock import clock
from tests.chaos.faults import Fault, Harm
from tests.chaos.main import Plan, Rig
from tests.chaos.proxies import Proxies
from tests.chaos.verdict import violations
from tests.support.waiting import pause, wait_until

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(240)
def test_a_storm_of_half_a_minute_breaks_no_promise(tmp_path: Path):
    words = ["--minutes", "0.4", "--runners", "5", "--gap", "1.2", "--load", "6"]
    words += ["--stages", "60", "--folder", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every promise was kept" in done.stdout


@pytest.mark.timeout(240)
def test_a_coordinator_that_does_not_notice_its_successor_is_found_out(tmp_path: Path):
    shape = Shape(coordinators=3, members=0, runners=2, lease_s=1.5)
    plan = Plan(
        seed=1,
        seconds=0.0,
        open_max=3,
        heal_s=5.0,
        with_slow=False,
        planted=(sys.executable, "-P", careless.__file__),
    )
    rig = Rig(tmp_path, shape, Proxies(), plan)
    try:
        found = violations(rig.run(_pause_the_leader))
    finally:
        rig.close()
    assert found["two leaders"]


def _pause_the_leader(rig: Rig) -> None:
    """Until another leads; then both do, for a while."""
    wait_until(lambda: rig.leaders.leader() is not None, 20.0, "a coordinator leads")
    leader, epoch = rig.leaders.leader() or "", rig.leaders.epoch
    began_at = clock()
    for _ in range(10):
        undo = Harm(rig.cluster).pause(leader)
        with suppress(TimeoutError):
            wait_until(lambda: rig.leaders.epoch > epoch, 5.0, "another leads")
        undo()
        if rig.leaders.epoch > epoch:
            break
        pause(0.5)  # it was stopped in the middle of a write, with the file locked that they share
    rig.storm.faults.append(Fault("coordinator paused", (leader,), began_at, 0.0, clock()))
    pause(3.0)
    rig.cluster.parts[leader].kill()  # so that the others can heal
