"""When logs grew: a row for each second in which they did, within a bound."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.core.model import log_times as rows
from phalanx.core.model.log_times import LogRow, pack_rows, read_rows
from phalanx.runner.keeper import log_times
from phalanx.runner.keeper.attempt import KeptAttempt
from phalanx.runner.keeper.log_times import GrowthTimes
from phalanx.runner.keeper.logs import LogWatch, Trimmer


def noted(folder: Path) -> list[LogRow]:
    path = folder / "j.0.1.times"
    return read_rows(path.read_bytes()) if path.exists() else []


def test_what_was_written_at_once_has_no_rows(tmp_path: Path):
    times = GrowthTimes(f"{tmp_path}/j.0.1.stdout", is_split=False)
    for number in range(10):
        times.grew((number,), 100.0 + number / 20)
    assert noted(tmp_path) == []


def test_a_burst_has_a_row_when_the_next_one_comes(tmp_path: Path):
    times = GrowthTimes(f"{tmp_path}/j.0.1.stdout", is_split=False)
    for size, at in ((3, 100.0), (5, 100.6), (9, 160.0), (11, 161.0)):
        times.grew((size,), at)
    assert noted(tmp_path) == [LogRow(100.6, 5), LogRow(160.0, 9)]


def test_two_logs_have_rows_every_40_ms(tmp_path: Path):
    times = GrowthTimes(f"{tmp_path}/j.0.1.stdout", is_split=True)
    for number in range(10):
        times.grew((number, 2 * number), 100.0 + number / 20)
    found = noted(tmp_path)
    assert [(row.stdout, row.stderr) for row in found] == [(number, 2 * number) for number in range(9)]


def test_the_file_is_bounded_and_its_newest_part_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(log_times, "ROWS_MAX", 64)
    monkeypatch.setattr(log_times, "KEPT_WHOLE", 16)
    times = GrowthTimes(f"{tmp_path}/j.0.1.stdout", is_split=False)
    for number in range(1000):
        times.grew((number,), 100.0 + number)
        assert len(noted(tmp_path)) <= 64
    found = noted(tmp_path)
    assert [row.stdout for row in found[-16:]] == [*range(983, 999)]
    assert found[0].stdout == 0
    assert found == sorted(found, key=lambda row: row.at)


def test_a_row_that_was_cut_off_does_not_spoil_the_next(tmp_path: Path):
    (tmp_path / "j.0.1.times").write_bytes(pack_rows([LogRow(1.0, 1)]) + b"torn")
    times = GrowthTimes(f"{tmp_path}/j.0.1.stdout", is_split=False)
    times.grew((5,), 100.0)
    times.grew((9,), 200.0)
    assert noted(tmp_path) == [LogRow(1.0, 1), LogRow(100.0, 5)]


def test_something_else_in_its_place_is_left_alone(tmp_path: Path):
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "j.0.1.times").symlink_to(tmp_path / "secret")
    times = GrowthTimes(f"{tmp_path}/j.0.1.stdout", is_split=False)
    times.grew((5,), 100.0)
    times.grew((9,), 200.0)
    assert (tmp_path / "secret").read_bytes() == b"secret"


def test_runner_and_keeper_mean_the_same(tmp_path: Path):
    assert (rows.ROW.format, rows.ONE_LOG) == (log_times.ROW.format, log_times.ONE_LOG)


@pytest.mark.parametrize("log_max_bytes", [0, 1 << 20])
def test_the_keeper_notes_what_it_sees_also_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_max_bytes: int
):
    out = tmp_path / "j.0.1.stdout"
    out.write_bytes(b"one\n")
    attempt = KeptAttempt("j/0/1", {"out": str(out), "err": str(out), "log_max_bytes": log_max_bytes})
    clock = iter([100.0, 160.0, 200.0])
    monkeypatch.setattr("phalanx.runner.keeper.system.wall", lambda: next(clock))
    watch = LogWatch(Trimmer())
    watch.started(attempt, 0.0)
    watch.look(1.0)
    watch.look(2.0)  # nothing new: it is quiet
    assert watch.next_at == float("inf")
    out.write_bytes(b"one\ntwo\n")
    watch.wrote("j/0/1", 3.0)
    watch.look(4.0)
    out.write_bytes(b"one\ntwo\nthree\n")
    watch.ended(attempt)
    assert noted(tmp_path) == [LogRow(100.0, 4), LogRow(160.0, 8)]
