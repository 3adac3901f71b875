"""`phalanx up` and `down` as a user types them: the whole cluster by one command, and back again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.waiting import wait_until

PRETEND = ["--nodes", "2", "--pretend", "cpus=4,gpus=2,ram=8GiB"]


class Shell:
    """A user's terminal with its own state folder."""

    def __init__(self, folder: Path) -> None:
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("PHALANX_", "KRISHIV_"))}
        self.env |= {"XDG_STATE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder / "none")}

    def __call__(self, *words: str, code: int = 0) -> str:
        argv = [sys.executable, "-m", "phalanx", *words]
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=50, check=False)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def said(self, *words: str) -> str:
        """What a command writes beside its output."""
        argv = [sys.executable, "-m", "phalanx", *words]
        return subprocess.run(
            argv, env=self.env, capture_output=True, text=True, timeout=50, check=True
        ).stderr

    def job(self, id: str) -> dict[str, object]:
        return dict(json.loads(self("show", id, "-o", "json")))


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    subprocess.run(
        [sys.executable, "-m", "phalanx", "down"], env=shell.env, capture_output=True, timeout=50, check=False
    )


def test_down_is_no_fault_of_a_running_task_and_up_runs_it_again(shell: Shell) -> None:
    shell("up", "--detach", *PRETEND)
    id = shell("submit", "--retries", "0", "-t", "n1", "--", "sleep", "300").strip()
    wait_until(lambda: shell.job(id)["status"] == "Running")
    assert "1 task on its nodes is stopped and starts again" in shell.said("down")
    shell("up", "--detach", *PRETEND)
    assert "its runner was stopped" in shell("story", id), "its end was told before the runner left"

    def again() -> bool:
        tasks = json.loads(shell("ps", "--tasks", id, "-o", "json"))
        return bool(tasks) and tasks[0]["status"] == "Running" and tasks[0]["attempt"] == 2

    wait_until(again, 20.0, "its second attempt runs")
    task = json.loads(shell("ps", "--tasks", id, "-o", "json"))[0]
    assert (task["retries_used"], task["losses"]) == (0, 0)


def test_exit_codes_are_those_of_the_table(shell: Shell) -> None:
    shell("up", "--detach", *PRETEND)
    assert shell("run", "--", "sh", "-c", "echo out; exit 7", code=7) == "out\n"
    shell("run", "--", "sh", "-c", "kill -9 $$", code=137)
    shell("submit", "--gpus", "9", "--", "true", code=4)
    holder = shell("submit", "-t", "n1::0", "--", "sleep", "300").strip()
    shell("submit", "--no-queue", "-t", "n1::0", "--", "true", code=3)
    shell("show", "0" * 26, code=5)
    shell("wait", holder, "--timeout", "0.2s", code=124)
    shell("cancel", holder)
    shell("cancel", holder, code=6)
    shell("submit", "--no-such-flag", code=2)
    shell("up", "--detach", "--pretend", "gpus=x", "--state", "/nowhere", code=2)


def test_a_million_tasks_are_cancelled_at_once_and_read_back_quickly(shell: Shell) -> None:
    shell("up", "--detach", *PRETEND)
    big = shell("submit", "--array", "1-1000000%1", "--", "sleep", "300").strip()
    wait_until(lambda: shell.job(big)["status"] == "Running")
    shell("cancel", big)
    assert shell.job(big)["counts"]["cancelled"] == 1_000_000  # type: ignore[index]
    shell("down")
    shell("up", "--detach", *PRETEND)
    assert shell.job(big)["status"] == "Cancelled"
