"""The machine of a runner: where the keeper of its state folder is reached, how one is started, and its folders.

Only what the runner's loop itself uses of the operating system is here, so that the simulator can replace it by its
own machine (`sim/node.py`). `processes.py` talks to the keeper.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from phalanx.runner.claim import Tasks
from phalanx.runner.keeper import files, journal, listener, lookup, service
from phalanx.runner.keeper.cgroup import OPTION
from phalanx.runner.keeper_messages import Ticks
from phalanx.runner.processes import KeeperFailed, Processes

KEEPER = Path(__file__).parent / "keeper" / "__main__.py"


class LocalMachine:
    """This machine, and one state folder on it."""

    def __init__(self, state_dir: Path, cgroups: tuple[str, ...] = ()) -> None:
        self._state_dir = state_dir
        self._cgroups = (
            cgroups  # this node's folders: a keeper ends processes that it finds there from before
        )

    def __str__(self) -> str:
        return str(self._state_dir)

    async def connect(self, make: Callable[[], Processes]) -> Processes:
        folder = os.open(self._state_dir, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # Through the open folder, since its own path may be longer than a socket address allows.
            path = f"/proc/self/fd/{folder}/{listener.NAME}"
            transport, processes = await asyncio.get_running_loop().create_unix_connection(make, path)
        finally:
            os.close(folder)
        try:
            is_of_a_keeper = await self._is_of_a_keeper(transport.get_extra_info("socket").fileno())
        except BaseException:  # for example, the caller has waited long enough
            transport.abort()
            raise
        if not is_of_a_keeper:
            await processes.close()
            raise ConnectionRefusedError(f"{self._state_dir}/{listener.NAME} is not a keeper's socket")
        return processes

    async def _is_of_a_keeper(self, connection: int) -> bool:
        """Whether a keeper listens there, and not a task. Its starter began to listen, or itself, if it did so again.

        A keeper that just starts, or starts a task, may be missed by one look.
        """
        listens = _listener_of(connection)
        for _ in range(lookup.LOOKS):
            tasks = Tasks(self._state_dir)
            is_task = _is_alive(listens) and listens in tasks
            if not is_task and any(pid not in tasks for pid in tasks.keepers):
                return True
            await asyncio.sleep(lookup.BETWEEN_LOOKS_S)
        return False

    async def start_keeper(self, within_s: float) -> None:
        await asyncio.to_thread(_start_keeper, self._state_dir, self._cgroups, within_s)

    def end_keeper(self) -> bool:
        """It is found as a keeper finds another: whichever version it is, and however its folder was spelt."""
        folder = os.path.realpath(self._state_dir)
        return sum(_kill_keeper(pid, folder) for pid in lookup.keepers(folder, service.LOCK)) > 0

    def make_folder(self, path: Path) -> None:
        try:
            path.mkdir(mode=0o700)
        except OSError:  # it exists, or something else does, or its parent is missing
            files.set_aside(str(path), unless=stat.S_ISDIR)
            path.mkdir(parents=True, exist_ok=True, mode=0o700)

    def begun(self) -> dict[str, tuple[float, Ticks]]:
        recorded = journal.read(str(self._state_dir / journal.NAME)).attempts
        return {
            key: (started_at, (ticks[0], ticks[1])) for key, (_, ticks, started_at, *_) in recorded.items()
        }


def _listener_of(connection: int) -> int:
    """The process that began to listen at the other end; it may be dead, and another one listen there now."""
    with socket.socket(fileno=os.dup(connection)) as end:
        return listener.peer_of(end)[0]


def _is_alive(pid: int) -> bool:
    return bool(files.read(f"/proc/{pid}/stat"))


def _kill_keeper(pid: int, folder: str) -> bool:
    """It is examined through a pidfd, so that no other process can have the pid meanwhile."""
    try:
        process = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not lookup.is_keeper(pid, folder):
            return False
        signal.pidfd_send_signal(process, signal.SIGKILL)
        return True
    except OSError:
        return False
    finally:
        os.close(process)


def _start_keeper(state_dir: Path, cgroups: tuple[str, ...], within_s: float) -> None:
    """Run the keeper's starter, which exits once its socket can be connected to.

    It is waited for in a thread: the event loops differ in what they do to children and their descriptors.
    """
    bases = [f"{OPTION}{folder}" for folder in cgroups]
    command = [sys.executable, "-I", "-S", "-X", "utf8", str(KEEPER), str(state_dir), *bases]
    try:
        starter = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            timeout=within_s,
            check=False,
            env={},  # the keeper lives long and its environment can be read: nothing of the runner's goes there
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError from None
    if starter.returncode != 0:
        complaint = starter.stderr.decode(errors="replace").strip()
        raise KeeperFailed(f"the keeper did not start: {complaint[-500:]}")
