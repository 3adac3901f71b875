"""Disks and memory: what is too little, and how much more it takes to pass again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from phalanx.runner.health.machine_checks import check_disks, check_memory

GIB = 1 << 30


def always(_: str) -> bool:
    return True


def never(_: str) -> bool:
    return False


def a_disk(monkeypatch: pytest.MonkeyPatch, free: int, total: int = 100 * GIB, inodes: int = 10**6) -> None:
    made = os.statvfs_result(
        (4096, 4096, total // 4096, free // 4096, free // 4096, 10**6, inodes, inodes, 0, 255)
    )
    monkeypatch.setattr(os, "statvfs", lambda _: made)


@pytest.mark.parametrize(
    ("free", "total", "fails"),
    [
        (2 * GIB, 100 * GIB, False),
        (GIB // 2, 100 * GIB, True),
        (GIB // 2, 4 * GIB, False),
        (0, 4 * GIB, True),
    ],
)
def test_a_disk_fails_below_its_limit_which_is_less_on_a_small_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, total: int, fails: bool
) -> None:
    a_disk(monkeypatch, free, total)
    [found] = check_disks([tmp_path, tmp_path / "not-there-yet"], GIB, never)
    assert bool(found.reason) == fails
    assert not fails or "% full" in found.reason


def test_what_failed_needs_more_than_the_limit_to_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_disk(monkeypatch, GIB + 4096)
    assert not check_disks([tmp_path], GIB, never)[0].reason
    assert check_disks([tmp_path], GIB, always)[0].reason


def test_a_disk_without_room_for_files_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_disk(monkeypatch, 50 * GIB, inodes=3)
    assert "3 more files" in check_disks([tmp_path], GIB, never)[0].reason


@pytest.mark.parametrize(("available", "fails"), [(10_000, True), (900_000, False)])
def test_memory_fails_below_its_limit(tmp_path: Path, available: int, fails: bool) -> None:
    (tmp_path / "meminfo").write_text(f"MemTotal: 16000000 kB\nMemFree: 1 kB\nMemAvailable: {available} kB\n")
    assert bool(check_memory(256 << 20, never, tmp_path).reason) == fails
