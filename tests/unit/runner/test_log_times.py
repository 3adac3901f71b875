"""When a log was written, as its node tells it and as it is copied with the log."""

from __future__ import annotations

import os
from pathlib import Path

from phalanx.core.model.job import ulid
from phalanx.core.model.log_times import LogRow, pack_rows, read_rows
from phalanx.runner.log_files import log_path, read_name
from phalanx.runner.log_times import read_times, times_to_keep

KEY = (ulid(1_700_000_000_000, 7), 0, 1)
AT = 1_700_000_000.0


def a_log(root: Path, stream: str, size: int, at: float) -> None:
    path = Path(log_path(root, *KEY, stream))
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (at, at))


def notes(root: Path, *rows: LogRow) -> None:
    Path(log_path(root, *KEY, "times")).write_bytes(pack_rows([*rows]))


def test_a_log_without_notes_was_written_when_its_file_was(tmp_path: Path):
    assert read_times(tmp_path, KEY) is None
    a_log(tmp_path, "stdout", 5, AT)
    assert read_times(tmp_path, KEY) == [LogRow(AT, 5)]
    a_log(tmp_path, "stderr", 3, AT + 1)
    assert read_times(tmp_path, KEY) == [LogRow(AT + 1, 5, 3)]


def test_notes_come_first_and_what_cannot_be_is_left_out(tmp_path: Path):
    a_log(tmp_path, "stdout", 50, AT + 9)
    notes(
        tmp_path, LogRow(AT, 5), LogRow(AT - 3, 7), LogRow(AT + 2, 3), LogRow(AT + 4, 20), LogRow(AT + 5, 90)
    )
    assert read_times(tmp_path, KEY) == [LogRow(AT, 5), LogRow(AT + 4, 20), LogRow(AT + 9, 50)]


def test_of_a_log_that_was_written_just_now_nothing_is_copied(tmp_path: Path):
    a_log(tmp_path, "stdout", 5, AT)
    assert times_to_keep(tmp_path, KEY, AT + 0.5) == b""
    assert read_rows(times_to_keep(tmp_path, KEY, AT + 5)) == [LogRow(AT, 5)]
    notes(tmp_path, LogRow(AT - 7, 2))
    assert read_rows(times_to_keep(tmp_path, KEY, AT + 0.5)) == [LogRow(AT - 7, 2), LogRow(AT, 5)]


def test_the_file_with_the_notes_belongs_to_its_attempt(tmp_path: Path):
    path = log_path(tmp_path, *KEY, "times")
    assert path.folder == log_path(tmp_path, *KEY, "stdout").folder
    assert read_name(path.folder, path.name) == (KEY, "times")
