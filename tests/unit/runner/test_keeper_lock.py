"""One keeper for a folder: another that is being started at the same moment is seen, though one look may miss it."""

from __future__ import annotations

import fcntl
from pathlib import Path

import pytest

from phalanx.runner.keeper import lookup, service
from phalanx.runner.keeper.mark import Mark

ANOTHER = 4_000_000  # no process has this number


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
        _looks(monkeypatch, *[set()] * service.LOOKS, {ANOTHER})
        assert service._lock(str(tmp_path), Mark(str(tmp_path))) is None


def test_a_lock_that_no_keeper_holds_is_replaced(tmp_path: Path):
    with (tmp_path / service.LOCK).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert service._lock(str(tmp_path), Mark(str(tmp_path))) is not None
