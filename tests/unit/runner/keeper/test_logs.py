"""The logs of a held member: those that its check made, unless something else was put in their place."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from phalanx.runner.keeper.attempt import KeptBrief
from phalanx.runner.keeper.cgroup import AttemptSlots
from phalanx.runner.keeper.files import LeftFiles
from phalanx.runner.keeper.output import LogWriter, close_outputs
from phalanx.runner.keeper.spawn import Spawner
from phalanx.runner.keeper.tree import Mark

KEY = "g/0/1"


@pytest.fixture
def spawner(tmp_path: Path) -> Spawner:
    state = tmp_path / "state"
    state.mkdir()
    return Spawner(AttemptSlots(Mark(str(state))), LeftFiles())


def _check(spawner: Spawner, tmp_path: Path, program: str) -> Callable[[], int]:
    """Check a held member; its exit code when it is started."""
    brief = KeptBrief({"argv": ["sh", "-c", program], "env": {"PATH": os.defpath}})
    options = {"out": str(tmp_path / "out"), "err": str(tmp_path / "err"), "held": True}
    spawner.check(KEY, brief, options)

    def go() -> int:
        attempt = spawner.start(KEY, brief, {**options, "held": False})
        code = os.waitstatus_to_exitcode(os.waitpid(attempt.pid, 0)[1])
        for path, fd in zip(attempt.logs, attempt.outputs, strict=True):
            assert LogWriter().take(fd, path)
        close_outputs(attempt)
        return code

    return go


def test_a_held_member_writes_the_logs_that_its_check_made(spawner: Spawner, tmp_path: Path):
    go = _check(spawner, tmp_path, "echo out; echo err >&2")
    made = [(tmp_path / name).stat().st_ino for name in ("out", "err")]
    before = len([*Path("/proc/self/fd").iterdir()])
    assert go() == 0
    assert [(tmp_path / name).stat().st_ino for name in ("out", "err")] == made
    assert [(tmp_path / name).read_text() for name in ("out", "err")] == ["out\n", "err\n"]
    assert len([*Path("/proc/self/fd").iterdir()]) == before


def test_its_streams_are_pipes_for_blocking_writes(spawner: Spawner, tmp_path: Path):
    assert (
        _check(spawner, tmp_path, "grep flags /proc/self/fdinfo/1; grep flags /proc/self/fdinfo/2 >&2")() == 0
    )
    for name in ("out", "err"):
        flags = int((tmp_path / name).read_text().split()[1], 8)
        assert flags & (os.O_ACCMODE | os.O_NONBLOCK) == os.O_WRONLY


def _written(path: Path) -> None:
    path.write_text("not of this task\n")


def _link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent / "elsewhere")


def _second_name(path: Path) -> None:
    os.link(path, path.parent / "elsewhere")


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _open_to_all(path: Path) -> None:
    path.chmod(0o666)


@pytest.mark.parametrize("name", ["out", "err"])
@pytest.mark.parametrize("plant", [Path.unlink, _written, _link, _second_name, _fifo, _open_to_all])
def test_what_was_put_in_the_place_of_a_log_is_replaced(
    spawner: Spawner, tmp_path: Path, name: str, plant: Callable[[Path], None]
):
    go = _check(spawner, tmp_path, "echo out; echo err >&2")
    plant(tmp_path / name)
    (elsewhere := tmp_path / "elsewhere").touch()
    assert go() == 0
    assert [(tmp_path / name).read_text() for name in ("out", "err")] == ["out\n", "err\n"]
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    assert elsewhere.read_text() == ""
