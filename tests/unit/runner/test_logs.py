"""Reading logs: by offset, the last lines, across gaps, and never outside their folder."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.runner import logs
from phalanx.runner.keeper.attempt import KeptAttempt
from phalanx.runner.keeper.logs import Trimmer
from phalanx.runner.log_files import LogPath, log_path, read_name
from phalanx.runner.logs import Chunk

MIB = 1 << 20
JOB = "01jcm3k8t0z9x5v7b2n4d6f8gh"


def a_log(root: Path, data: bytes) -> LogPath:
    path = log_path(root, JOB, 3, 1, "stdout")
    Path(path).parent.mkdir(exist_ok=True)
    Path(path).write_bytes(data)
    return path


def a_trimmed_log(root: Path) -> LogPath:
    """16 MiB of numbered lines, of which the keeper kept the first 1 MiB and the last 2 MiB."""
    path = a_log(root, b"".join(b"%07d\n" % number for number in range(2 * MIB)))
    Trimmer().trim(KeptAttempt("k", {"out": str(path), "err": "/nowhere", "log_max_bytes": 4 * MIB}))
    return path


def test_reading_goes_on_where_it_stopped(tmp_path: Path):
    path = a_log(tmp_path, b"hello world")
    first = logs.read(path, 0, 5)
    assert first == Chunk(0, b"hello", 11)
    assert logs.read(path, first.offset + len(first.data), 100) == Chunk(5, b" world", 11)
    assert logs.read(path, 11, 100) == Chunk(11, b"", 11)


def test_odd_offsets_and_limits_give_something_sensible(tmp_path: Path):
    path = a_log(tmp_path, b"hello")
    assert logs.read(path, 99, 10) == Chunk(5, b"", 5)
    assert logs.read(path, -7, 2) == Chunk(0, b"he", 5)
    assert logs.read(path, 0, -1) == Chunk(0, b"", 5)


def test_no_file_yet_is_an_empty_log(tmp_path: Path):
    path = log_path(tmp_path, JOB, 0, 1, "stderr")
    assert logs.read(path, 0, 100) == Chunk(0, b"", 0, missing=True)
    assert logs.tail(path, 10) == Chunk(0, b"", 0, missing=True)
    assert logs.read(log_path(tmp_path / "none", JOB, 0, 1, "stderr"), 0) == Chunk(0, b"", 0, missing=True)


@pytest.mark.parametrize(
    ("lines", "tail"),
    [(0, b""), (1, b"three"), (2, b"two\nthree"), (3, b"one\ntwo\nthree"), (9, b"one\ntwo\nthree")],
)
def test_the_last_lines_of_a_log(tmp_path: Path, lines: int, tail: bytes):
    assert logs.tail(a_log(tmp_path, b"one\ntwo\nthree"), lines).data == tail
    whole = logs.tail(a_log(tmp_path, b"one\ntwo\nthree\n"), lines)
    assert whole.data == (tail + b"\n" if lines else b"")
    assert whole.offset + len(whole.data) == whole.size == 14


@given(
    st.binary(max_size=300).map(lambda data: data.replace(b"x", b"\n")),
    st.integers(1, 20),
    st.integers(1, 50),
)
def test_the_tail_is_what_splitting_the_whole_would_give(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, lines: int, block: int
):
    path = a_log(tmp_path_factory.mktemp("logs"), data)
    ordinary, logs._BLOCK = logs._BLOCK, block
    try:
        found = logs.tail(path, lines).data
    finally:
        logs._BLOCK = ordinary
    kept = data.split(b"\n")
    ends_whole = kept[-1] == b""
    assert found == b"\n".join(kept[-(lines + ends_whole) :])


def test_a_tail_is_bounded_in_bytes(tmp_path: Path):
    chunk = logs.tail(a_log(tmp_path, b"x" * 1000), 1, limit=100)
    assert (chunk.offset, len(chunk.data)) == (900, 100)


def test_five_gigabytes_have_a_quick_tail(tmp_path: Path):
    path = a_log(tmp_path, b"")
    os.truncate(path, 5_000_000_000)
    with Path(path).open("ab") as file:
        file.write(b"x" * 8 * MIB + b"\n" + b"line\n" * 100_000)
    begin = time.perf_counter()
    chunk = logs.tail(path, 10)
    assert time.perf_counter() - begin < 0.1
    assert chunk.data == b"line\n" * 10


def test_a_gap_is_skipped_and_told(tmp_path: Path):
    path = a_trimmed_log(tmp_path)
    before = logs.read(path, 0, 4 * MIB)
    assert (before.gap, len(before.data)) == (0, MIB)
    after = logs.read(path, MIB, 4 * MIB)
    assert (after.offset, after.gap, len(after.data)) == (14 * MIB, 13 * MIB, 2 * MIB)
    inside = logs.read(path, 10 * MIB, 8)
    assert (inside.offset, inside.gap, inside.data) == (14 * MIB, 4 * MIB, b"%07d\n" % (14 * MIB // 8))


def test_a_tail_stops_behind_a_gap_and_says_so(tmp_path: Path):
    path = a_trimmed_log(tmp_path)
    few, many = logs.tail(path, 2), logs.tail(path, 2 * MIB)
    assert (few.gap, few.data) == (0, b"%07d\n%07d\n" % (2 * MIB - 2, 2 * MIB - 1))
    assert many.offset == 14 * MIB
    assert many.gap > 0
    assert len(many.data) == 2 * MIB


def test_a_hole_at_the_very_end_is_nothing_but_a_gap(tmp_path: Path):
    path = a_log(tmp_path, b"x" * 4096)
    os.truncate(path, 3 * 4096)
    assert logs.read(path, 4096, 10) == Chunk(3 * 4096, b"", 3 * 4096, 2 * 4096)
    assert logs.tail(path, 5).data == b""


@pytest.mark.parametrize(
    ("job", "position", "attempt", "stream"),
    [
        *(
            (job, 0, 1, "stdout")
            for job in ("", "..", ".", "a/b", "/etc", "a\0b", "%2e%2e", "a.b", "-a", "x" * 64, "ä")
        ),
        (JOB, -1, 1, "stdout"),
        (JOB, 0, 1 << 60, "stdout"),
        (JOB, 0, 1, "passwd"),
        (JOB, 0, 1, "../stdout"),
    ],
)
def test_no_text_from_outside_names_another_file(
    tmp_path: Path, job: str, position: int, attempt: int, stream: str
):
    with pytest.raises(ValueError, match=r"is not a|out of range"):
        log_path(tmp_path, job, position, attempt, stream)


def test_links_fifos_and_second_names_are_not_read(tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    path = a_log(tmp_path, b"")
    for plant in (
        lambda: Path(path).symlink_to(secret),
        lambda: Path(path).hardlink_to(secret),
        lambda: os.mkfifo(path),
        lambda: Path(path).mkdir(),
    ):
        Path(path).unlink()
        plant()
        assert logs.read(path, 0).data == b""
        if Path(path).is_dir():
            Path(path).rmdir()
            Path(path).touch()


def test_a_log_is_found_where_an_earlier_version_wrote_it(tmp_path: Path):
    path = log_path(tmp_path, JOB, 3, 1, "stdout")
    assert str(path.former) == f"{tmp_path}/{JOB}/3.1.stdout"
    Path(path.former).parent.mkdir()
    Path(path.former).write_bytes(b"old")
    assert logs.read(path, 0).data == b"old"


def test_jobs_of_one_time_share_a_folder_and_a_name_says_whose_file_it_is(tmp_path: Path):
    first, second = (log_path(tmp_path, f"{JOB[:-5]}{end}", 3, 12, "result") for end in ("00001", "00002"))
    assert first.folder == second.folder and first.name != second.name
    assert read_name(first.folder, first.name) == ((f"{JOB[:-5]}00001", 3, 12), "result")
    assert read_name(JOB, "3.12.stdout") == ((JOB, 3, 12), "stdout")
    for name in (f"{JOB}.3.stdout", f"{JOB}.3.1.core", f"{JOB}..1.stdout", "a b.1.1.stdout", "notes.txt"):
        assert read_name(JOB, name) is None


def test_a_job_folder_that_is_a_link_is_not_entered(tmp_path: Path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    path = log_path(tmp_path, JOB, 3, 1, "stdout")
    for name in (path.name, path.former.name):
        (elsewhere / name).write_text("secret")
    for folder in (path.folder, path.former.folder):
        (tmp_path / folder).symlink_to(elsewhere)
    assert logs.read(log_path(tmp_path, JOB, 3, 1, "stdout"), 0).data == b""
