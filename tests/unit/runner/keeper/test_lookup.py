"""Which process is the keeper of a folder, among processes that look more or less like one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from phalanx.runner.keeper import lookup

PROGRAM = "/somewhere/runner/keeper/__main__.py"


@contextmanager
def a_process(*words: str) -> Iterator[int]:
    """A process that waits, with these words at the end of its command line."""
    command = ["/bin/sh", "-c", "echo; read line", *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # it is no longer our own image
        yield process.pid
        process.kill()


def test_a_keeper_is_known_by_its_program_and_its_folder(tmp_path: Path):
    (tmp_path / "state").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "state")
    for folder in ("state", "link"):
        with a_process(PROGRAM, str(tmp_path / folder), "600") as pid:
            assert lookup.is_keeper(pid, str(tmp_path / "state"))
            assert lookup.is_keeper(pid, str(tmp_path / "link"))
            assert not lookup.is_keeper(pid, str(tmp_path))
        assert not lookup.is_keeper(pid, str(tmp_path / "state"))  # it is gone


@pytest.mark.parametrize("program", ["/somewhere/bookkeeper/__main__.py", "/bin/true"])
def test_another_program_is_no_keeper(tmp_path: Path, program: str):
    with a_process(program, str(tmp_path)) as pid:
        assert not lookup.is_keeper(pid, str(tmp_path))
