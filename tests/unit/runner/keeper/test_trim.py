"""What is kept of a large log: the first quarter of its limit and the newest half."""

from __future__ import annotations

import ctypes
import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.runner.keeper.attempt import KeptAttempt
from phalanx.runner.keeper.logs import KEPT_BEHIND_BYTES, Trimmer, hole

MIB = 1 << 20


def an_attempt(path: Path, log_max_bytes: int) -> KeptAttempt:
    return KeptAttempt("j/0/1", {"out": str(path), "err": "/nowhere", "log_max_bytes": log_max_bytes})


@given(st.integers(1, 1 << 45), st.integers(1, 1 << 40))
def test_the_hole_leaves_what_was_promised(size: int, size_max: int):
    begin, end = hole(size, size_max)
    assert begin % 4096 == end % 4096 == 0
    assert begin >= size_max // 4
    assert size - end >= size_max // 2
    if end > begin:
        assert size - (end - begin) <= size_max * 3 // 4 + 2 * 4096


def test_disk_is_given_back_and_offsets_stay(tmp_path: Path):
    path = tmp_path / "log"
    path.write_bytes(b"a" * MIB + b"b" * 14 * MIB + b"c" * MIB)
    trimmer = Trimmer()
    trimmer.trim(an_attempt(path, 4 * MIB))
    assert path.stat().st_size == 16 * MIB
    assert path.stat().st_blocks * 512 <= 3 * MIB + 8192
    assert path.read_bytes()[:MIB] == b"a" * MIB
    assert path.read_bytes()[-MIB:] == b"c" * MIB
    assert trimmer.supported


def test_a_growing_log_is_emptied_again_only_where_it_is_new(tmp_path: Path):
    path = tmp_path / "log"
    path.write_bytes(b"x" * 8 * MIB)
    attempt, trimmer = an_attempt(path, 4 * MIB), Trimmer()
    punched: list[tuple[int, int]] = []
    trimmer._punch = lambda path, begin, end: punched.append((begin, end)) or True  # type: ignore[method-assign,func-returns-value]
    trimmer.trim(attempt)
    with path.open("ab") as file:
        file.write(b"x" * MIB)
    trimmer.trim(attempt)
    path.write_bytes(b"y" * 5 * MIB)  # the task started its log again
    trimmer.trim(attempt)
    assert punched == [(MIB, 6 * MIB), (6 * MIB, 7 * MIB), (MIB, 3 * MIB)]


def test_a_log_within_its_allowance_or_without_one_is_left_alone(tmp_path: Path):
    path = tmp_path / "log"
    path.write_bytes(b"x" * MIB)
    blocks = path.stat().st_blocks
    Trimmer().trim(an_attempt(path, MIB))
    Trimmer().trim(an_attempt(path, 0))
    assert path.stat().st_blocks == blocks


def test_a_filesystem_that_cannot_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "log"
    path.write_bytes(b"x" * 8 * MIB)
    trimmer = Trimmer()

    def refuse(*_: object) -> int:
        ctypes.set_errno(errno.EOPNOTSUPP)
        return -1

    monkeypatch.setattr(trimmer._libc, "fallocate", refuse)
    trimmer.trim(an_attempt(path, MIB))
    assert not trimmer.supported


def test_a_link_in_place_of_a_log_is_not_followed(tmp_path: Path):
    target, path = tmp_path / "precious", tmp_path / "log"
    target.write_bytes(b"x" * 8 * MIB)
    path.symlink_to(target)
    Trimmer().trim(an_attempt(path, MIB))
    assert target.stat().st_blocks * 512 >= 8 * MIB


@pytest.mark.parametrize(("lived_s", "looked"), [(0.001, False), (100.0, True), (-5.0, True)])
def test_only_one_that_lived_long_enough_is_looked_at(tmp_path: Path, lived_s: float, looked: bool):
    path = tmp_path / "log"
    path.write_bytes(b"x" * 80 * MIB)
    attempt = an_attempt(path, 64 * MIB)
    attempt.started_at, attempt.ended_at = 1000.0, 1000.0 + lived_s
    Trimmer().trim_at_end(attempt)
    assert (path.stat().st_blocks * 512 < 64 * MIB) == looked


def test_nothing_is_cut_that_the_reader_of_an_attached_attempt_may_still_need(tmp_path: Path):
    path = tmp_path / "log"
    path.write_bytes(b"a" * 40 * MIB)
    options = {"out": str(path), "err": str(path), "log_max_bytes": 4 * MIB, "attached": True}
    attempt = KeptAttempt("j/0/1", options)
    assert attempt.readers is not None
    (reader,) = attempt.readers
    trimmer = Trimmer()
    for at, kept in ((0, 40), (KEPT_BEHIND_BYTES // MIB, 40), (KEPT_BEHIND_BYTES // MIB + 11, 30)):
        reader.come(at * MIB, 1000.0)
        trimmer.trim(attempt)
        assert path.stat().st_blocks * 512 // MIB == kept
    reader.until = None  # nobody reads it any more
    trimmer.trim(attempt)
    assert path.stat().st_blocks * 512 <= 3 * MIB + 8192
