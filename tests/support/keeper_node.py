"""A keeper for one test: started in the test's folder, and gone with everything it ran at the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from phalanx.core.runner.attempts import ProcessEnd
from phalanx.runner.keeper.lookup import is_keeper
from phalanx.runner.keeper_messages import (
    Event,
    Launch,
    ProcessEnded,
    ProcessReady,
    ProcessRefused,
    ProcessStarted,
    Row,
)
from phalanx.runner.machine import LocalMachine
from phalanx.runner.processes import Processes

WITHIN_S = 20.0
LOOK_S = 0.01
Said = TypeVar("Said", ProcessReady, ProcessStarted, ProcessEnded, ProcessRefused)
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


class Node:
    """One connection to the keeper, everything it sent, and ways to wait for more."""

    def __init__(self, folder: Path, bases: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self._bases = bases
        self.events: list[Event] = []
        self.cgroups: str | None = None  # the folder in which attempts get cgroups of their own
        self._news = asyncio.Event()
        self.processes: Processes

    async def connect(self) -> Processes:
        self.processes = await Processes.open(LocalMachine(self.folder, self._bases), self._on_event)
        return self.processes

    def _on_event(self, event: Event) -> None:
        self.events.append(event)
        self._news.set()

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until it is true, looking again with each event and every few milliseconds."""
        async with asyncio.timeout(WITHIN_S):
            while not condition():
                self._news.clear()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), LOOK_S)

    def start(self, key: str, *argv: str, cwd: str | None = None, **launch: object) -> None:
        """Start an attempt with its own brief."""
        self.processes.brief(key, argv, ENV, cwd, self.cgroups)
        paths = {"out": str(self.out(key)), "err": str(self.err(key))}
        self.processes.start(key, key, Launch(**{**paths, **launch}))  # type: ignore[arg-type]

    def sh(self, key: str, script: str, cwd: str | None = None, **launch: object) -> None:
        """Start a shell script in the test's folder, or another."""
        self.start(key, "sh", "-c", script, cwd=cwd or str(self.folder), **launch)

    def pid_in(self, name: str) -> int:
        """The pid that a script has written into a file; 0 while it has not."""
        path = self.folder / name
        return int(path.read_text() or 0) if path.exists() else 0

    def out(self, key: str) -> Path:
        return self.folder / f"{key.replace('/', '.')}.stdout"

    def err(self, key: str) -> Path:
        return self.folder / f"{key.replace('/', '.')}.stderr"

    async def said(self, key: str, text: str) -> None:
        """Wait until the attempt has written this."""
        await self.until(lambda: self.out(key).exists() and text in self.out(key).read_text())

    async def ready(self, key: str) -> None:
        """Wait until the keeper holds it."""
        await self.until(lambda: self._find(ProcessReady, key))

    async def started(self, key: str) -> int:
        """Its pid, once it runs."""
        await self.until(lambda: self._find(ProcessStarted, key))
        return self._find(ProcessStarted, key)[-1].pid

    async def ended(self, key: str) -> ProcessEnd:
        await self.until(lambda: self._find(ProcessEnded, key))
        return self._find(ProcessEnded, key)[-1].exit

    async def refused(self, key: str) -> ProcessRefused:
        await self.until(lambda: self._find(ProcessRefused, key))
        return self._find(ProcessRefused, key)[-1]

    async def over(self, key: str) -> None:
        """Wait until it has ended or was refused."""
        await self.until(lambda: self._find(ProcessEnded, key) or self._find(ProcessRefused, key))

    def was_refused(self, key: str, code: str) -> bool:
        return any(each.code == code for each in self._find(ProcessRefused, key))

    async def row(self, key: str) -> Row | None:
        rows = (await self.processes.listing()).attempts
        return next((row for row in rows if row.key == key), None)

    def has_started(self, key: str) -> bool:
        """Whether the keeper ever reported that it runs."""
        return bool(self._find(ProcessStarted, key))

    def _find(self, kind: type[Said], key: str) -> list[Said]:
        return [event for event in self.events if isinstance(event, kind) and event.key == key]

    def keeper_pids(self) -> list[int]:
        """The keepers of this folder that are alive, by their command line."""
        pids = (int(entry.name) for entry in Path("/proc").glob("[0-9]*"))
        return [pid for pid in pids if is_keeper(pid, str(self.folder))]

    def watchdog_pids(self) -> list[int]:
        """The watchdogs of this folder's keepers that are alive, by their title."""
        title = f"phalanx-watchdog of {self.folder}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (entry / "cmdline").read_bytes().rstrip(b"\0") == title and alive(int(entry.name)):
                    found.append(int(entry.name))
        return found

    def keeper_pid(self) -> int:
        (pid,) = self.keeper_pids()
        return pid


def state_of(pid: int) -> str:
    """The kernel's letter for a process: R, S, T, …; empty when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    return state_of(pid) not in ("", "Z", "X")


def pipes_of(pid: int) -> int:
    """How many ends of pipes it has open."""
    count = 0
    with suppress(FileNotFoundError):
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                count += str(link.readlink()).startswith("pipe:")
    return count


def escape(name: str, command: str) -> str:
    """Shell text: run this in its own session, and continue once its pid is in a file of that name."""
    return f"setsid sh -c 'echo $$ >{name}; exec {command}' & while ! [ -s {name} ]; do :; done; "


@asynccontextmanager
async def a_node(folder: Path, bases: tuple[str, ...] = ()) -> AsyncIterator[Node]:
    node = Node(folder, bases)
    await node.connect()
    try:
        yield node
    finally:
        await (await node.connect()).shutdown(0.0)
        await node.until(lambda: not node.keeper_pids())


def tell(
    folder: Path, story: Callable[[Node], Coroutine[Any, Any, None]], bases: tuple[str, ...] = ()
) -> None:
    """Run a story with a keeper in this folder."""

    async def whole() -> None:
        async with a_node(folder, bases) as node:
            await story(node)

    asyncio.run(whole())
