"""One runner for each state folder: a second one refuses, whatever tasks did to the lock; a task blocks none."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from phalanx.errors import Conflict
from phalanx.runner import claim
from phalanx.runner.keeper.spawn import KEEPER_VARIABLE

A_RUNNER = """
import sys
from pathlib import Path
from phalanx.errors import Conflict
from phalanx.runner import claim

print("ready", flush=True)
sys.stdin.readline()
try:
    with claim.claimed(Path(sys.argv[1])):
        print("goes on", flush=True)
        sys.stdin.read()
except Conflict as error:
    print(error, flush=True)
"""
A_TASK = """
import fcntl, os, sys
lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fcntl.flock(lock, fcntl.LOCK_EX)
os.dup2(lock, int(sys.argv[2]))
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def running(*argv: str, **env: str) -> Iterator[subprocess.Popen[str]]:
    argv = (sys.executable, "-c", *argv)
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, env=os.environ | env, text=True) as process:
        try:
            assert said(process) in {"ready", "held"}
            yield process
        finally:
            process.kill()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


@contextmanager
def a_runner(folder: Path) -> Iterator[subprocess.Popen[str]]:
    with running(A_RUNNER, str(folder)) as process:
        go(process)
        assert said(process) == "goes on"
        yield process


def refusal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(claim, "TRIES", 3)
    with pytest.raises(Conflict) as caught, claim.claimed(folder):
        pass
    assert (caught.value.exit_code, "runner stop" in caught.value.hint) == (6, True)
    return caught.value.detail


def untouched(lock: Path) -> None:
    assert lock.exists()


def replaced(lock: Path) -> None:
    lock.unlink()
    lock.touch()


def renamed(lock: Path) -> None:
    lock.rename(f"{lock}.set-aside")


def a_fifo(lock: Path) -> None:
    lock.unlink()
    os.mkfifo(lock)


@pytest.mark.parametrize("done", [untouched, Path.unlink, replaced, renamed, a_fifo])
def test_a_second_runner_refuses_and_names_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: Callable[[Path], None]
) -> None:
    with a_runner(tmp_path) as first:
        done(tmp_path / claim.LOCK)
        assert refusal(tmp_path, monkeypatch) == f"{tmp_path} has a runner already: process {first.pid}"
        assert claim.runners(tmp_path) == [first.pid]
        assert first.poll() is None


def test_however_the_folder_is_spelt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "link").symlink_to("state")
    with a_runner(tmp_path / "link") as first:
        (tmp_path / "state" / claim.LOCK).unlink()
        assert f"process {first.pid}" in refusal(tmp_path / "state", monkeypatch)


def test_a_frozen_runner_is_a_living_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with a_runner(tmp_path) as first:
        os.kill(first.pid, signal.SIGSTOP)
        os.waitpid(first.pid, os.WUNTRACED)
        assert "is stopped (SIGSTOP)" in refusal(tmp_path, monkeypatch)


def test_after_a_kill_the_next_one_goes_on(tmp_path: Path) -> None:
    with a_runner(tmp_path) as first:
        first.kill()  # and is not waited for
        with claim.claimed(tmp_path):
            assert claim.runners(tmp_path) == [os.getpid()]


def test_of_several_that_start_at_once_one_goes_on(tmp_path: Path) -> None:
    with ExitStack() as stack:
        several = [stack.enter_context(running(A_RUNNER, str(tmp_path))) for _ in range(5)]
        for each in several:
            go(each)
        heard = [said(each) for each in several]
        [winner] = [each.pid for each, words in zip(several, heard, strict=True) if words == "goes on"]
        losers = [words for words in heard if words != "goes on"]
        assert losers == [f"{tmp_path} has a runner already: process {winner}"] * 4


@pytest.mark.parametrize("descriptor", [77, claim.DESCRIPTOR])
def test_a_task_that_holds_the_lock_keeps_no_runner_away(tmp_path: Path, descriptor: int) -> None:
    lock = tmp_path / claim.LOCK
    mark = {KEEPER_VARIABLE: os.path.realpath(tmp_path)}
    with running(A_TASK, str(lock), str(descriptor), **mark) as task:
        assert claim.runners(tmp_path) == []
        assert not claim.is_runner(tmp_path, task.pid)
        with claim.claimed(tmp_path):
            assert claim.runners(tmp_path) == [os.getpid()]
            assert task.poll() is None


def test_a_holder_that_cannot_be_seen_is_not_taken_for_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in another container; here the lock is on its way through a socket, and in no process."""
    near, far = socket.socketpair()
    with near, far:
        with (tmp_path / claim.LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            socket.send_fds(near, [b"x"], [lock.fileno()])
        assert "of another container or account" in refusal(tmp_path, monkeypatch)
