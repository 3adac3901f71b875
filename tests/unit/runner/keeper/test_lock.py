"""One keeper for a folder: another that starts at the same moment is seen, though one look may miss it."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from phalanx.runner.keeper import lookup, service
from phalanx.runner.keeper.tree import Mark

ANOTHER = 4_000_000  # no process has this pid


def _looks(monkeypatch: pytest.MonkeyPatch, *found: set[int]) -> None:
    answers = [*found]
    monkeypatch.setattr(lookup, "keepers", lambda *_: answers.pop(0) if answers else set())


@pytest.mark.parametrize("missed", [0, 1])
def test_a_keeper_that_goes_on_as_its_own_child_keeps_its_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missed: int
):
    lock = tmp_path / service.LOCK
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        _looks(monkeypatch, *[set()] * missed, {ANOTHER})
        assert service._lock(str(tmp_path), Mark(str(tmp_path))) is None
    assert [path.name for path in tmp_path.iterdir()] == [service.LOCK]


def test_who_took_the_lock_before_it_was_set_aside_is_the_keeper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with (tmp_path / service.LOCK).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        _looks(monkeypatch, *[set()] * lookup.LOOKS, *[{ANOTHER}] * 1000)
        assert service._lock(str(tmp_path), Mark(str(tmp_path))) is None


def test_a_lock_that_no_keeper_holds_is_replaced(tmp_path: Path):
    with (tmp_path / service.LOCK).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert service._lock(str(tmp_path), Mark(str(tmp_path))) is not None


@contextmanager
def a_starter(folder: Path, holds: str = "") -> Iterator[subprocess.Popen[bytes]]:
    """A process that looks like a keeper being started, with the lock file open; and locked, if it holds it."""
    command = f"exec 9>>{folder / service.LOCK}; {holds} echo; read line"
    words = ["sh", "-c", command, "/somewhere/runner/keeper/__main__.py", str(folder)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def test_who_has_the_lock_goes_on_though_others_have_tried(tmp_path: Path):
    with a_starter(tmp_path):
        assert service._lock(str(tmp_path), Mark(str(tmp_path))) is not None


def test_who_has_not_the_lock_withdraws(tmp_path: Path):
    with a_starter(tmp_path, "flock 9;"):
        assert service._lock(str(tmp_path), Mark(str(tmp_path))) is None


@pytest.mark.parametrize("take_away", [Path.unlink, lambda path: path.rename(f"{path}.set-aside")])
def test_a_keeper_whose_lock_was_taken_away_stays_the_only_one(
    tmp_path: Path, take_away: Callable[[Path], object]
):
    with a_starter(tmp_path, "flock 9;"):
        take_away(tmp_path / service.LOCK)
        assert service._lock(str(tmp_path), Mark(str(tmp_path))) is None


def test_who_took_the_name_waits_for_the_other_to_withdraw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with a_starter(tmp_path, "flock 9;") as other:
        (tmp_path / service.LOCK).unlink()
        looks = lookup.keepers

        def keepers(state_dir: str, lock: str, held: int | None = None) -> set[int]:
            found = looks(state_dir, lock, held)
            other.kill()
            return found

        monkeypatch.setattr(lookup, "keepers", keepers)
        assert service._lock(str(tmp_path), Mark(str(tmp_path))) is not None


def test_who_lost_the_name_withdraws_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(service, "WITHDRAW_S_MAX", 600.0)
    path = tmp_path / service.LOCK
    lock = service._try_lock(str(path))
    assert lock is not None
    path.unlink()
    with a_starter(tmp_path, "flock 9;"):
        assert not service._is_alone(str(tmp_path), Mark(str(tmp_path)), str(path), lock)
    os.close(lock)
