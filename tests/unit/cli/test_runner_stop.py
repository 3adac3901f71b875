"""`phalanx runner stop`: the runner of the folder is found and stopped, and no other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.runner import claim, stopping
from phalanx.runner.keeper.spawn import KEEPER_VARIABLE
from tests.support.fake_client import Cli

A_TASK = """
import fcntl, os, sys
lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(lock, fcntl.LOCK_EX)
os.dup2(lock, 200)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_task_that_looks_like_a_runner_is_not_told(cli: Cli, away: Path):
    folder = away / "runners" / "n1"
    folder.mkdir(parents=True)
    (away / "precious").write_text("kept")
    (folder / f"{stopping.REQUEST}.new").symlink_to(away / "precious")
    argv = [sys.executable, "-c", A_TASK, str(folder / claim.LOCK)]
    env = os.environ | {KEEPER_VARIABLE: os.path.realpath(folder)}
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as task:
        assert task.stdout is not None
        assert task.stdout.readline()
        said = cli("runner", "stop", "--state", str(away), "--name", "n1")
        assert (said.code, "no runner is running" in said.err) == (5, True), said
        assert task.poll() is None
        task.kill()
    assert stopping.asked(folder) is None
    assert (away / "precious").read_text() == "kept"


def test_no_runner_to_stop_is_told_by_the_exit_code(cli: Cli, away: Path):
    said = cli("runner", "stop", "--state", str(away))
    assert (said.code, "no runner is running" in said.err) == (5, True)


A_RUNNER = """
import signal, sys
from pathlib import Path
from phalanx.runner import stopping

folder = Path(sys.argv[1])
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
with stopping.on_duty(folder):
    print("on duty", flush=True)
    signal.sigwait({signal.SIGTERM})
    stopping.write_outcome(folder, stopping.StopOutcome(int(sys.argv[2]), sys.argv[3] == "drained", True, 12.0))
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
        (folder / claim.LOCK).unlink()  # as a task can
        said = cli("runner", "stop", "--drain", "--state", str(away), "--name", "n1")
        runner.kill()
    assert (said.code, text in said.err) == (code, True), said
