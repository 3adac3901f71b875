"""What a task plants where its keeper looks next: it delays nothing and disables nothing."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from phalanx.runner.claim import Tasks
from phalanx.runner.keeper.link import peer_of
from phalanx.runner.keeper.lookup import is_keeper
from phalanx.runner.keeper_messages import KeeperLost
from phalanx.runner.machine import LocalMachine
from phalanx.runner.processes import Processes
from tests.support.keeper_node import Node, alive, tell


def _link(path: Path) -> None:
    path.symlink_to(path.parent / "elsewhere")


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("removed", ["rm -r logs", "rm -r logs; touch logs"])
def test_a_folder_of_logs_that_a_task_removed_is_made_anew(tmp_path: Path, removed: str, held: bool):
    logs = tmp_path / "logs"
    logs.mkdir()

    async def story(node: Node) -> None:
        node.sh("j/0/1", removed, out=str(logs / "0.out"), err=str(logs / "0.err"))
        await node.ended("j/0/1")
        node.sh("j/1/1", "echo mine", out=str(logs / "1.out"), err=str(logs / "1.err"), held=held)
        if held:
            await node.ready("j/1/1")
            node.processes.go("j/1/1")
        assert (await node.ended("j/1/1")).code == 0
        assert (logs / "1.out").read_text() == "mine\n"

    tell(tmp_path, story)


def _folder(path: Path) -> None:
    (path / "x").mkdir(parents=True)


async def _lose_keeper(node: Node) -> None:
    os.kill(node.keeper_pid(), signal.SIGKILL)
    await node.until(lambda: any(isinstance(event, KeeperLost) for event in node.events))


@pytest.mark.parametrize("plant", [os.mkfifo, _folder, _link])
@pytest.mark.parametrize("name", ["journal", "journal.new", "lock", "log", "sock"])
def test_a_keeper_starts_whatever_lies_in_its_folder(
    tmp_path: Path, name: str, plant: Callable[[Path], None]
):
    async def story(node: Node) -> None:
        path = tmp_path / f"keeper.{name}"
        for turn in (1, 2):
            if not path.is_dir():
                path.unlink(missing_ok=True)
                plant(path)
            await _lose_keeper(node)
            node.events.clear()
            await node.connect()
            node.sh(f"j/0/{turn}", "true")
            assert (await node.ended(f"j/0/{turn}")).code == 0
        assert f"keeper.{name} is not a regular file" in (tmp_path / "keeper.log").read_text()

    tell(tmp_path, story)


def test_with_a_lock_taken_by_a_task_its_watchdog_ends_it_and_a_keeper_starts(tmp_path: Path):
    lock = "keeper.lock"

    async def story(node: Node) -> None:
        node.processes.lease(0.8)
        node.sh(
            "j/0/1", f"flock {tmp_path / lock} sleep 300 & echo ready; exec flock {tmp_path / lock} sleep 300"
        )
        await node.said("j/0/1", "ready")
        pid = await node.started("j/0/1")
        await _lose_keeper(node)
        await node.until(lambda: not alive(pid))
        await node.connect()

    tell(tmp_path, story)


def test_a_lock_that_is_held_by_no_keeper_keeps_none_away(tmp_path: Path):
    async def story(node: Node) -> None:
        old = node.keeper_pid()
        with (tmp_path / "keeper.lock").open() as file:
            await _lose_keeper(node)
            fcntl.flock(file, fcntl.LOCK_EX)
            await node.connect()
            assert node.keeper_pid() != old

    tell(tmp_path, story)


def test_there_is_one_keeper_even_if_a_task_removes_lock_and_socket(tmp_path: Path):
    async def story(node: Node) -> None:
        keeper = node.keeper_pid()
        node.processes.lease(60.0)
        node.sh("j/0/1", f"rm {tmp_path}/keeper.lock {tmp_path}/keeper.sock; echo done; exec sleep 300")
        await node.said("j/0/1", "done")
        pid = await node.started("j/0/1")
        await node.processes.close()
        await node.connect()
        assert node.keeper_pids() == [keeper]
        assert alive(pid)
        row = await node.row("j/0/1")
        assert row is not None
        assert row.pid == pid

    tell(tmp_path, story)


FORGE = """
import json, os, socket, sys
if os.fork():
    os._exit(0)
os.setsid()
peer = socket.socket(socket.AF_UNIX)
peer.connect(sys.argv[1])
frame = json.dumps([["lease", 1e9], ["list"]]).encode()
try:
    peer.sendall(len(frame).to_bytes(4, "big") + frame)
    print("answer", peer.recv(100), flush=True)
except OSError as error:
    print("answer", error, flush=True)
"""


def test_a_task_cannot_speak_for_the_runner(tmp_path: Path):
    async def story(node: Node) -> None:
        node.processes.lease(60.0)
        forge = tmp_path / "forge.py"
        forge.write_text(FORGE)
        node.sh("j/0/1", f"env -i {sys.executable} {forge} {tmp_path}/keeper.sock; exec sleep 300")
        await node.said("j/0/1", "answer")
        assert "listing" not in node.out("j/0/1").read_text()
        assert await node.row("j/0/1")  # the runner is still connected
        assert not any(isinstance(event, KeeperLost) for event in node.events)

    tell(tmp_path, story)


FAKE = """
import json, os, socket, sys
os.chdir(sys.argv[1])
if os.path.lexists("keeper.sock"):
    os.unlink("keeper.sock")
listener = socket.socket(socket.AF_UNIX)
listener.bind("keeper.sock")
listener.listen()
print("listens", flush=True)
while True:
    peer, _ = listener.accept()
    try:
        size = int.from_bytes(peer.recv(4), "big")
        peer.recv(size)
        body = json.dumps([["listing", [], {"version": 4}]]).encode()
        peer.sendall(len(body).to_bytes(4, "big") + body)
    except OSError:
        pass
"""


def test_a_task_that_listens_in_the_keepers_place_is_not_believed(tmp_path: Path):
    async def story(node: Node) -> None:
        fake, gate = tmp_path / "fake.py", tmp_path / "gate"
        fake.write_text(FAKE)
        wait, said = f"until test -e {gate}; do sleep 0.01; done", tmp_path / "said"
        node.sh("j/0/1", f"{wait}; exec {sys.executable} {fake} {tmp_path} > {said}")
        await node.started("j/0/1")
        keeper = node.keeper_pid()
        os.kill(keeper, signal.SIGSTOP)  # or it takes its place again at once
        try:
            gate.touch()
            await node.until(lambda: said.exists() and "listens" in said.read_text())
            with pytest.raises(ConnectionRefusedError):
                await LocalMachine(tmp_path).connect(lambda: Processes(node.events.append))
        finally:
            os.kill(keeper, signal.SIGCONT)
        await node.processes.close()
        await node.connect()
        assert await node.row("j/0/1"), "the keeper itself answers"

    tell(tmp_path, story)


def test_whoever_listens_while_there_is_no_keeper_is_not_believed(tmp_path: Path):
    async def story(node: Node) -> None:
        await _lose_keeper(node)
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", FAKE, str(tmp_path), stdout=pipe)
        try:
            assert process.stdout is not None
            assert await process.stdout.readline()
            await node.connect()
            assert alive(node.keeper_pid())
        finally:
            process.kill()
            await process.wait()

    tell(tmp_path, story)


def test_who_connects_can_tell_the_keeper_from_a_task_in_its_place(tmp_path: Path):
    """A task that looks like a keeper and keeps its marks; the runner asks the socket which process listens."""

    async def story(node: Node) -> None:
        os.mkfifo(tmp_path / "fifo")
        fake_keeper = f"{sys.executable} -c 'input()' /x/keeper/__main__.py {tmp_path}"
        node.sh("j/0/1", f"{fake_keeper} <fifo & echo $! >fake; exec 9>fifo; wait")
        await node.until(lambda: is_keeper(node.pid_in("fake"), str(tmp_path)))
        tasks, fake = Tasks(tmp_path), node.pid_in("fake")
        (keeper,) = {*node.keeper_pids()} - {fake}
        assert fake in tasks
        assert keeper not in tasks
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(tmp_path / "keeper.sock"))
            assert peer_of(connection) == (keeper, os.geteuid())

    tell(tmp_path, story)
