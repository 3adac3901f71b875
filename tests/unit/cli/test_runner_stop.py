"""`phalanx runner stop`: only the runner of the folder is told, whatever stands in the file that names it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import json

from phalanx.cli.owner import Owner
from phalanx.runner import stopping
from tests.unit.cli.stage import Cli


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours that is no runner."""
    with subprocess.Popen(["sleep", "300"]) as process:
        yield process
        process.kill()


def test_a_forged_pid_file_signals_nobody(cli: Cli, away: Path, sleeper: subprocess.Popen[bytes]):
    folder = away / "runners" / "n1"
    folder.mkdir(parents=True)
    (folder / stopping.PID).write_bytes(json.encode(Owner.of(sleeper.pid)))
    (away / "precious").write_text("kept")
    (folder / f"{stopping.REQUEST}.new").symlink_to(away / "precious")
    said = cli("runner", "stop", "--state", str(away), "--name", "n1")
    assert (said.code, f"process {sleeper.pid} is not" in said.err) == (6, True), said
    assert sleeper.poll() is None
    assert stopping.asked(folder) is None
    assert (away / "precious").read_text() == "kept"


def test_no_runner_to_stop_is_told_by_the_exit_code(cli: Cli, away: Path):
    said = cli("runner", "stop", "--state", str(away))
    assert (said.code, "no runner is at work" in said.err) == (5, True)


def test_who_holds_the_folder_is_its_runner_unless_it_is_a_task(tmp_path: Path):
    assert not stopping.is_runner_of(tmp_path, os.getpid())
    with stopping.on_duty(tmp_path):
        assert stopping.is_runner_of(tmp_path, os.getpid())
        assert not stopping.is_runner_of(tmp_path / "..", os.getpid())
        code = "import os, sys; print(os.open(sys.argv[1], os.O_RDONLY), flush=True); sys.stdin.read()"
        env = os.environ | {"PHALANX_ATTEMPT_KEY": "j1.0#1"}
        argv = [sys.executable, "-c", code, str(tmp_path)]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as task:
            assert task.stdout is not None
            assert task.stdout.readline()
            assert not stopping.is_runner_of(tmp_path, task.pid)
            task.kill()
    assert not stopping.is_runner_of(tmp_path, os.getpid())


A_RUNNER = """
import signal, sys
from pathlib import Path
from phalanx.runner import stopping

folder = Path(sys.argv[1])
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
with stopping.on_duty(folder):
    print("on duty", flush=True)
    signal.sigwait({signal.SIGTERM})
    stopping.leave_word(folder, stopping.Farewell(int(sys.argv[2]), sys.argv[3] == "drained", True, 12.0))
"""


@pytest.mark.parametrize(
    ("tasks", "drained", "code", "text"),
    [
        (2, "drained", 0, "stopped; 2 tasks ended and were reported"),
        (3, "not drained", 1, "stopped; 3 tasks run on for at most 12s"),
    ],
)
def test_a_drain_says_how_many_tasks_are_left(
    cli: Cli, away: Path, tasks: int, drained: str, code: int, text: str
):
    folder = away / "runners" / "n1"
    folder.mkdir(parents=True)
    argv = [sys.executable, "-c", A_RUNNER, str(folder), str(tasks), drained]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as runner:
        assert runner.stdout is not None
        assert runner.stdout.readline()
        said = cli("runner", "stop", "--drain", "--state", str(away), "--name", "n1")
        runner.kill()
    assert (said.code, text in said.err) == (code, True), said
