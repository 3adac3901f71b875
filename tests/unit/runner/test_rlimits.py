"""The limit of processes for tasks of a runner without rights."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from phalanx.runner import rlimits

UNLIMITED = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("uid", "allowed", "pid_max", "limit"),
    [
        (1000, UNLIMITED, 32_768, 32_768 - rlimits.RESERVED),
        (1000, 4096, 32_768, 4096 - rlimits.RESERVED),
        (1000, 100, 32_768, 50),
        (0, 4096, 32_768, 0),
    ],
)
def test_some_processes_are_left_for_the_runner(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, uid: int, allowed: int, pid_max: int, limit: int
):
    monkeypatch.setattr("os.geteuid", lambda: uid)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (allowed, UNLIMITED))
    (tmp_path / "pid_max").write_text(f"{pid_max}\n")
    assert rlimits.processes_of_tasks(tmp_path / "pid_max") == limit
