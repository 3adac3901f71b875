"""Logs on a node are removed by age and by size, those of running attempts never."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from phalanx.clock import SteadyClock
from phalanx.core.model.orders import AttemptKey
from phalanx.runner import retention
from phalanx.runner.retention import Limits, keep_swept, sweep
from tests.support.deep_folders import make_deep

NOW, HOUR, MIB = 1_000_000.0, 3600.0, 1 << 20
PATH_MAX = 4096
OLD, NEW = "01jcm3k8t0z9x5v7b2n4d6f8gh", "01jcm3k8t0z9x5v7b2n4d6f8gj"


def a_log(root: Path, job: str, name: str, age_s: float, size: int = MIB) -> Path:
    path = root / job / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))
    os.utime(path, (NOW - age_s, NOW - age_s))
    return path


def left(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_what_is_too_old_goes_and_its_folder_with_it(tmp_path: Path):
    a_log(tmp_path, OLD, "0.1.stdout", 3 * HOUR)
    a_log(tmp_path, OLD, "0.1.result", 3 * HOUR)
    a_log(tmp_path, NEW, "0.1.stdout", HOUR)
    assert sweep(tmp_path, Limits(2 * HOUR, 0), set(), NOW) == (2, 2 * MIB)
    assert left(tmp_path) == {f"{NEW}/0.1.stdout"}
    assert not (tmp_path / OLD).exists()


def test_the_oldest_go_until_the_rest_is_small_enough(tmp_path: Path):
    for number in range(5):
        a_log(tmp_path, OLD, f"0.{number + 1}.stderr", (5 - number) * HOUR)
    sweep(tmp_path, Limits(0.0, 2 * MIB), set(), NOW)
    assert left(tmp_path) == {f"{OLD}/0.4.stderr", f"{OLD}/0.5.stderr"}


def test_jobs_that_share_a_folder_have_ages_of_their_own(tmp_path: Path):
    a_log(tmp_path, OLD[:7], f"{OLD}.0.1.stdout", 3 * HOUR)
    a_log(tmp_path, OLD[:7], f"{NEW}.0.1.stdout", 3 * HOUR)
    a_log(tmp_path, OLD[:7], f"{NEW}.0.2.stdout", HOUR)
    assert sweep(tmp_path, Limits(2 * HOUR, 0), {(NEW, 0, 1)}, NOW) == (1, MIB)
    assert left(tmp_path) == {f"{OLD[:7]}/{NEW}.0.{number}.stdout" for number in (1, 2)}


@pytest.mark.parametrize("limits", [Limits(HOUR, 0), Limits(0.0, 1)])
def test_logs_of_a_running_attempt_stay(tmp_path: Path, limits: Limits):
    a_log(tmp_path, OLD, "7.2.stdout", 9 * HOUR)
    live: set[AttemptKey] = {(OLD, 7, 2)}
    assert sweep(tmp_path, limits, live, NOW) == (0, 0)


def test_without_limits_everything_stays(tmp_path: Path):
    a_log(tmp_path, OLD, "0.1.stdout", 1e9)
    assert sweep(tmp_path, Limits(0.0, 0), set(), NOW) == (0, 0)


def test_only_what_is_a_log_is_removed_and_links_are_not_followed(tmp_path: Path):
    other = a_log(tmp_path / "elsewhere", OLD, "0.1.stdout", 9 * HOUR)
    root = tmp_path / "logs"
    notes = a_log(root, OLD, "notes.txt", 9 * HOUR)
    (root / NEW).symlink_to(other.parent)
    assert sweep(root, Limits(HOUR, 0), set(), NOW) == (0, 0)
    assert notes.exists()
    assert other.exists()


def test_no_folder_yet_is_nothing_to_remove(tmp_path: Path):
    assert sweep(tmp_path / "none", Limits(1.0, 1), set(), NOW) == (0, 0)


def test_a_file_in_place_of_the_folder_is_nothing_to_remove(tmp_path: Path):
    (tmp_path / "logs").write_text("planted")
    assert sweep(tmp_path / "logs", Limits(1.0, 1), set(), NOW) == (0, 0)


def test_a_folder_that_cannot_be_read_keeps_no_other_from_being_swept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It has a path that is too long, since root could read it whatever its mode is."""
    root = tmp_path
    while len(str(root)) < PATH_MAX - 300:
        root /= "x" * 200
    root /= "x" * (PATH_MAX - 60 - len(str(root)))
    root.mkdir(parents=True)
    a_log(root, OLD, "0.1.stdout", 9 * HOUR)
    monkeypatch.chdir(root)
    Path("y" * 100).mkdir()
    assert sweep(root, Limits(HOUR, 0), set(), NOW) == (1, MIB)


def test_sweeping_goes_on_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    old = a_log(tmp_path, OLD, "0.1.stdout", time.time() + HOUR)
    asked: list[int] = []

    def live() -> set[AttemptKey]:
        asked.append(1)
        if len(asked) == 1:
            raise RuntimeError("can't start new thread")
        return set()

    async def story() -> None:
        sweeping = asyncio.ensure_future(keep_swept(tmp_path, Limits(HOUR, 0), live, SteadyClock()))
        async with asyncio.timeout(20.0):
            while old.exists() and not sweeping.done():
                await asyncio.wait({sweeping}, timeout=0.01)
        assert not sweeping.done()
        sweeping.cancel()

    monkeypatch.setattr(retention, "FIRST_AFTER_S", 0.0)
    monkeypatch.setattr(retention, "EVERY_S", 0.01)
    asyncio.run(story())
    assert len(asked) >= 2


def test_artifacts_that_could_not_be_sent_go_like_logs(tmp_path: Path):
    inside = a_log(tmp_path, OLD, "0.1.artifacts/sub/model", 3 * HOUR)
    for folder in (inside.parent, inside.parents[1]):
        os.utime(folder, (NOW - 3 * HOUR, NOW - 3 * HOUR))
    (tmp_path / OLD / "0.2.artifacts").symlink_to("/etc")
    a_log(tmp_path, NEW, "0.1.artifacts/model", HOUR)
    assert sweep(tmp_path, Limits(2 * HOUR, 0), {(OLD, 0, 1)}, NOW) == (0, 0)
    removed, freed = sweep(tmp_path, Limits(2 * HOUR, 0), set(), NOW)
    assert removed == 1 and MIB <= freed < 2 * MIB, "with what the folder inside takes"
    assert left(tmp_path) == {f"{NEW}/0.1.artifacts/model"}


def test_what_a_task_made_in_place_of_its_result_goes_like_a_result(tmp_path: Path):
    inside = a_log(tmp_path, OLD, "0.1.result/model", 3 * HOUR)
    os.mkfifo(tmp_path / OLD / "0.2.result")
    (tmp_path / OLD / "0.3.result").symlink_to("/etc")
    for path in (inside.parent, *(tmp_path / OLD).iterdir()):
        os.utime(path, (NOW - 3 * HOUR, NOW - 3 * HOUR), follow_symlinks=False)
    assert sweep(tmp_path, Limits(2 * HOUR, 0), set(), NOW)[0] == 3
    assert [*tmp_path.iterdir()] == []


def test_artifacts_in_very_deep_folders_keep_no_log_from_being_swept(tmp_path: Path):
    artifacts = tmp_path / "results" / "01job.0.1.artifacts"
    artifacts.mkdir(parents=True)
    make_deep(artifacts)
    os.utime(artifacts, (0, 0))
    log = tmp_path / "01abcde" / "01abcdef.0.1.stdout"
    log.parent.mkdir()
    log.write_text("old")
    os.utime(log, (1, 1))
    assert sweep(tmp_path, Limits(10.0, 0), set(), 1000.0)[0] == 2
    assert not artifacts.exists() and not log.exists()
