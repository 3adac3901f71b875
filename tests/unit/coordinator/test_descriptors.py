"""File descriptors are divided so that strangers never take those of runners and users."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from phalanx.coordinator.descriptors import shares

RAISE = """
import json, resource, sys
from phalanx.coordinator.descriptors import raise_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
print(json.dumps([raise_limit(), resource.getrlimit(resource.RLIMIT_NOFILE)[0]]))
"""


@pytest.mark.parametrize("limit", [256, 1024, 4096, 20_000, 65_536, 1_000_000])
@pytest.mark.parametrize("with_rpc", [False, True])
def test_all_shares_fit_into_the_limit_with_some_to_spare(limit: int, with_rpc: bool):
    room = shares(limit, with_rpc=with_rpc)
    assert min(room[:4]) >= 4 and (room.rpc >= 4) == with_rpc
    used = (
        room.rest_known
        + room.link_known
        + room.rpc
        + 2 * (room.rest_unauthenticated + room.link_unauthenticated)
    )
    assert used <= limit - min(128, limit // 8)


def test_with_the_usual_limit_there_is_room_for_a_hundred_runners():
    assert shares(1024).link_known >= 200  # two connections each


@pytest.mark.parametrize(("soft", "hard", "raised"), [(256, 2048, 2048), (512, 512, 512)])
def test_the_soft_limit_is_raised_to_the_hard_one_and_a_low_one_is_named(soft: int, hard: int, raised: int):
    ran = subprocess.run(
        [sys.executable, "-c", RAISE, str(soft), str(hard)], capture_output=True, text=True, check=True
    )
    assert json.loads(ran.stdout.splitlines()[-1]) == [raised, raised]
    assert "few files may be open at once" in ran.stdout + ran.stderr
