"""The file in which a task gives its result: what is taken of it, and that nothing in its place does harm."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from phalanx.core.model.orders import RESULT_FILE_BYTES_MAX
from phalanx.runner.log_files import LogPath, inner_result, log_path
from phalanx.runner.merging import read_result
from phalanx.runner.results import file_bytes_max

JOB = "0" * 26


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = Path(log_path(tmp_path, JOB, 0, 1, "result"))
    path.parent.mkdir()
    return path


def read(file: Path) -> tuple[str, str]:
    return taken(log_path(file.parents[1], JOB, 0, 1, "result"))


def taken(path: LogPath) -> tuple[str, str]:
    found = read_result(path, 0)
    return found.text, found.error


@pytest.mark.parametrize(
    ("written", "result"),
    [
        ('{"loss": 0.5,\n "tags": ["a"]}\n', '{"loss":0.5,"tags":["a"]}'),
        ("3", "3"),
        ('"é"', '"é"'),
        ("null", "null"),
        ("", ""),
        (" \n", ""),
        ("12345678901234567890123", "12345678901234567890123"),
    ],
)
def test_json_is_taken_without_its_white_space(file: Path, written: str, result: str):
    file.write_text(written)
    assert read(file) == (result, "")


def test_who_writes_none_has_none(file: Path):
    assert read(file) == ("", "")


@pytest.mark.parametrize(
    "written",
    [
        b"loss: 0.5",
        b"{",
        b"NaN",
        b'{"a": 1} {"b": 2}',
        b'"\xff"',
        b"[" * 5000,
        b" " * file_bytes_max(1) + b"1",
        b'"' + b"x" * RESULT_FILE_BYTES_MAX + b'"',
    ],
)
def test_anything_else_is_refused_with_a_sentence(file: Path, written: bytes):
    file.write_bytes(written)
    result, error = read(file)
    assert result == ""
    assert error.startswith("its result ")


@pytest.mark.parametrize("levels", [101, 975, 20_000])
def test_what_is_nested_too_deep_is_refused(file: Path, levels: int):
    file.write_text('{"a": ' + "[" * (levels - 1) + "]" * (levels - 1) + "}")
    assert read(file)[0] == ""
    assert "nested more than 100 levels deep" in read(file)[1]
    file.write_text("[" * 100 + "]" * 100)
    assert read(file) == ("[" * 100 + "]" * 100, "")


def test_the_longest_result_is_taken(file: Path):
    file.write_text('"' + "x" * (RESULT_FILE_BYTES_MAX - 2) + '"')
    assert len(read(file)[0]) == RESULT_FILE_BYTES_MAX


def test_nothing_but_a_plain_file_is_read(file: Path, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.write_text('"secret"')
    file.symlink_to(secret)
    assert read(file)[0] == ""
    file.unlink()
    os.mkfifo(file)  # nobody writes to it: whoever opened it would wait
    assert read(file)[0] == ""
    file.unlink()
    file.mkdir()
    assert read(file)[0] == ""
    file.rmdir()
    file.symlink_to("/dev/zero")
    assert read(file)[0] == ""
    file.unlink()
    secret.rename(tmp_path / "0.1.result")
    file.parent.rmdir()
    file.parent.symlink_to(tmp_path)  # the folder of the job leads elsewhere
    assert read(file)[0] == ""


@pytest.mark.parametrize("written", ['{"loss": NaN}', "[1, -Infinity]"])
def test_what_python_writes_for_no_number_is_named(file: Path, written: str):
    file.write_text(written)
    assert read(file) == (
        "",
        "its result is not JSON, which has no NaN and no Infinity: write null or a text instead",
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another account")
def test_in_a_folder_of_another_account_a_file_that_is_not_its_own_is_not_read(tmp_path: Path):
    artifacts = log_path(tmp_path, JOB, 0, 1, "artifacts")
    Path(artifacts).mkdir(parents=True)
    os.chown(artifacts, 1, 1)
    written = Path(inner_result(artifacts))
    written.write_text("7")
    assert taken(inner_result(artifacts)) == (
        "",
        "its result cannot be read: it is another account's file",
    )
    os.chown(written, 1, 1)
    assert taken(inner_result(artifacts)) == ("7", "")
