"""The machine of a runner: the keeper of its state folder, found, started, checked and replaced, and its folders.

`LocalMachine` has what the runner's loop itself uses of the operating system, so that the simulator can replace it by
its own machine (`sim/node.py`). `processes.py` talks to the keeper.

Whether the keeper works: it is pinged every second, and a missing answer is counted in looks, not in time. So a runner
that was frozen itself blames nothing when it resumes. The heartbeats report what is found to the coordinator
(`turn.py`). A keeper that is gone is replaced, and one that has been silent for longer than a lease is ended first: by
then its watchdog has ended what it ran. The loop reads what a keeper kept (`Processes.found`).
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
from contextlib import suppress
from pathlib import Path
from typing import Any

from phalanx.logger import logger
from phalanx.runner.claim import Tasks
from phalanx.runner.keeper import journal, link, lookup, service, system
from phalanx.runner.keeper.cgroup import OPTION
from phalanx.runner.keeper_messages import Event, Ticks
from phalanx.runner.log_files import INNER_RESULT, LogPath
from phalanx.runner.merging import read_result
from phalanx.runner.peers import write_hosts
from phalanx.runner.processes import KeeperFailed, KeeperSilent, Machine, Processes
from phalanx.runner.results import TaskResult, file_bytes
from phalanx.runner.turn import RunnerEngine

KEEPER = Path(__file__).parent / "keeper" / "__main__.py"
LOOK_S = 0.2  # between two looks
ASK_AFTER = 5  # looks after an answer until the next ping
SILENT_AFTER = 15  # looks without an answer
ENDS_S = 3.0  # beyond the lease: by then the watchdog has ended what the keeper ran
GONE_AFTER = 10  # looks without a keeper: another one is usually there sooner
SILENT = "its keeper does not answer; is that process stopped?"
GONE = "its keeper is gone, and another one is not there yet"
log = logger("runner")
FIRST_WITHIN_S = 10.0  # one try when the runner starts
AGAIN_WITHIN_S = 3.0  # one try while it runs


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
            path = f"/proc/self/fd/{folder}/{link.NAME}"
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
            raise ConnectionRefusedError(f"{self._state_dir}/{link.NAME} is not a keeper's socket")
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

    def is_in_use(self) -> bool:
        """Whether there is a keeper, or one has left something that was not reported."""
        folder = os.path.realpath(self._state_dir)
        return bool(lookup.keepers(folder, service.LOCK)) or bool(self.begun())

    def make_folder(self, path: str) -> None:
        try:
            os.mkdir(path, mode=0o700)  # noqa: PTH102 - for every job
        except FileExistsError:
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                system.set_aside(path, unless=stat.S_ISDIR)
                Path(path).mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:  # it exists, or something else does, or its parent is missing
            system.set_aside(path, unless=stat.S_ISDIR)
            Path(path).mkdir(parents=True, exist_ok=True, mode=0o700)

    def remove_empty(self, path: str) -> None:
        with suppress(OSError):
            os.rmdir(path)  # noqa: PTH106 - for every job

    def read_result(self, path: LogPath, tasks: int, bytes_max: int | None) -> TaskResult | None:
        return None if bytes_max is not None and file_bytes(path) > bytes_max else read_result(path, tasks)

    def write_hosts(self, path: LogPath, text: str) -> None:
        write_hosts(path, text)

    def remove_hosts(self, path: LogPath) -> None:
        with suppress(OSError):
            Path(path).unlink(missing_ok=True)

    def make_artifacts(self, path: LogPath) -> None:
        self.make_folder(str(path))

    def has_artifacts(self, path: LogPath) -> bool:
        return os.path.lexists(path)

    def close_artifacts(self, path: LogPath) -> bool:
        try:
            mode = os.lstat(path).st_mode
            with os.scandir(path) as entries:
                if stat.S_ISDIR(mode) and any(entry.name != INNER_RESULT for entry in entries):
                    return True
        except OSError:  # the task has removed it, or put something else in its place
            return False
        if stat.S_ISDIR(mode):
            with suppress(OSError):  # something was put into it just now
                os.rmdir(path)  # noqa: PTH106
        return False

    def begun(self) -> dict[str, tuple[float, Ticks]]:
        recorded = journal.read(str(self._state_dir / journal.NAME)).attempts
        return {
            key: (started_at, (ticks[0], ticks[1])) for key, (_, ticks, started_at, *_) in recorded.items()
        }


def _listener_of(connection: int) -> int:
    """The process that began to listen at the other end; it may be dead, and another one listen there now."""
    with socket.socket(fileno=os.dup(connection)) as end:
        return link.peer_of(end)[0]


def _is_alive(pid: int) -> bool:
    return bool(system.read(f"/proc/{pid}/stat"))


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


class KeeperHealth:
    """What keeps us from starting tasks; empty while the keeper answers."""

    def __init__(self) -> None:
        self.trouble = ""
        self._keeper: Processes | None = None
        self._answer: asyncio.Future[Any] | None = None
        self._looks = 0  # since the last ping, answer or loss
        self._unreached_s = 0.0  # how long we have tried in vain to connect to one that does not answer

    def look(self, keeper: Processes | None) -> str:
        """Ping, or check whether it has answered; to be called every LOOK_S."""
        if keeper is not self._keeper:
            self._keeper, self._answer, self._looks = keeper, None, 0
        self._looks += 1
        if keeper is None:
            if self._looks > GONE_AFTER and not self.trouble:
                self.trouble = GONE
        elif self._answer is not None and self._answer.done():
            self._note(self._answer)
            self._answer, self._looks = None, 0
        elif self._answer is not None and self._looks > SILENT_AFTER:
            self.trouble = SILENT
        elif self._answer is None and self._looks >= ASK_AFTER:
            self._answer, self._looks = keeper.ping(), 0
        return self.trouble

    def is_past(self, lease_s: float) -> bool:
        """Whether the keeper has just been silent for so long, once more, that what it ran is over.

        Then another one may take its place.
        """
        return self._answer is not None and self._looks % round((lease_s + ENDS_S) / LOOK_S) == 0

    def is_unreached(self, tried_s: float, lease_s: float) -> bool:
        """A keeper did not answer a new connection for so long; returns whether it is past, as above."""
        self._unreached_s += tried_s
        if self._unreached_s < lease_s + ENDS_S:
            return False
        self._unreached_s = 0.0
        return True

    def failed(self, error: Exception) -> None:
        """There is no keeper, and none can be started."""
        self.trouble = f"its keeper is gone, and another one cannot be started: {error}"

    def works(self) -> None:
        """There is a keeper, and it has answered."""
        self.trouble, self._unreached_s = "", 0.0

    def _note(self, answer: asyncio.Future[Any]) -> None:
        if not answer.cancelled() and answer.exception() is None:
            self.trouble = ""


class Connecting:
    """The connection of one runner to the keeper of its machine."""

    def __init__(
        self,
        machine: Machine,
        health: KeeperHealth,
        engine: RunnerEngine,
        on_event: Callable[[Event], None],
        on_settled: Callable[[], None],
    ) -> None:
        self._machine = machine
        self._health = health
        self._engine = engine
        self._on_event = on_event
        self._on_settled = on_settled

    async def first(self) -> Processes:
        """At the runner's start: a keeper that does not answer is waited for; raises KeeperFailed if there is none.

        It may run attempts, so nothing is sent to the coordinator before we know which.
        """
        while True:
            try:
                return await self.again(FIRST_WITHIN_S)
            except KeeperSilent as error:
                log.error("no keeper, trying again", error=str(error))

    async def again(self, within_s: float = AGAIN_WITHIN_S) -> Processes:
        """One try; raises KeeperFailed."""
        try:
            keeper = await Processes.open(
                self._machine, self._on_event, self._on_settled, deadline_s=within_s
            )
        except KeeperSilent as error:
            if error.is_there and self._health.is_unreached(within_s, self._engine.self_fence_s):
                self.end_keeper()
            raise
        self._health.works()
        if not keeper.found.facts.log_cap:
            log.warning("logs are not bounded: their filesystem cannot punch holes", log_cap=False)
        return keeper

    def end_keeper(self) -> None:
        if self._machine.end_keeper():
            log.error("the keeper is killed: it has not answered for longer than a lease")
        else:
            log.error("the keeper has not answered for longer than a lease, and cannot be found to be killed")
