"""A network on loopback: every service is behind a small proxy, and a cut stops what flows through it.

All parts have the same address here, so the sender of a connection is read from the kernel's tables: the proxy looks
up which process holds the other end. What is cut waits, as in TCP, and flows on when it is healed; a connection during
a cut is accepted by the proxy and then goes nowhere, where a real network would not even accept it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import suppress
from pathlib import Path

from tests.chaos.network import RIG, ServiceAddress
from tests.support.servers import a_free_port

_LOOPBACK = "127.0.0.1"
_PIECE_BYTES = 64 << 10


class Proxies:
    """All proxies of one rig, in their own thread."""

    needs_tls = False

    def __init__(self) -> None:
        self._pids: dict[str, int] = {RIG: os.getpid()}
        self._cuts: set[tuple[str, str]] = set()
        self._pumps: set[asyncio.Task[None]] = set()  # asyncio itself would forget them
        self._servers: list[asyncio.Server] = []
        self._loop = asyncio.new_event_loop()
        self._changed = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._thread.start()

    def service_address(self, owner: str, service: str, port: int) -> ServiceAddress:
        behind, front = a_free_port(), a_free_port()
        asyncio.run_coroutine_threadsafe(self._listen(owner, behind, front), self._loop).result(10)
        return ServiceAddress(_LOOPBACK, behind, _LOOPBACK, front)

    def enter(self, owner: str) -> list[str]:
        return []

    def settled(self, owner: str, pid: int) -> None:
        self._pids[owner] = pid

    def cut(self, source: str, target: str) -> None:
        self._loop.call_soon_threadsafe(self._cuts.add, (source, target))

    def heal(self, source: str, target: str) -> None:
        def healed() -> None:
            self._cuts.discard((source, target))
            self._changed.set()
            self._changed = asyncio.Event()

        self._loop.call_soon_threadsafe(healed)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._cancel_all(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    async def _cancel_all(self) -> None:
        for server in self._servers:
            server.close()
        carried = asyncio.all_tasks() - {asyncio.current_task()}
        for task in carried:
            task.cancel()
        await asyncio.gather(*carried, return_exceptions=True)
        await asyncio.to_thread(lambda: None)  # a turn of the loop, in which aborted connections close

    async def _listen(self, owner: str, behind: int, front: int) -> None:
        async def carry(inward: asyncio.StreamReader, outward: asyncio.StreamWriter) -> None:
            dialler = self._dialler(outward.get_extra_info("peername")[1], front)
            with suppress(asyncio.CancelledError):  # the rig closes
                await self._carry(dialler, owner, behind, inward, outward)

        self._servers.append(await asyncio.start_server(carry, _LOOPBACK, front, backlog=1024))

    async def _carry(
        self,
        dialler: str,
        owner: str,
        port: int,
        inward: asyncio.StreamReader,
        outward: asyncio.StreamWriter,
    ) -> None:
        try:
            await self._until_open(dialler, owner)
            await self._until_open(owner, dialler)
            answers, asked = await asyncio.open_connection(_LOOPBACK, port)
        except (OSError, asyncio.CancelledError):
            outward.transport.abort()
            return
        pumps = {
            asyncio.ensure_future(self._pump(dialler, owner, inward, asked)),
            asyncio.ensure_future(self._pump(owner, dialler, answers, outward)),
        }
        self._pumps |= pumps
        try:
            await asyncio.wait(pumps)
        finally:
            self._pumps -= pumps
            for end in (asked, outward):
                end.transport.abort()

    async def _pump(
        self, source: str, target: str, inward: asyncio.StreamReader, outward: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            while piece := await inward.read(_PIECE_BYTES):
                await self._until_open(source, target)
                outward.write(piece)
                await outward.drain()
        await self._until_open(source, target)  # the other end's close does not pass a cut either
        with suppress(OSError):
            if outward.can_write_eof():
                outward.write_eof()

    async def _until_open(self, source: str, target: str) -> None:
        while (source, target) in self._cuts:
            await self._changed.wait()

    def _dialler(self, port: int, front: int) -> str:
        """The part whose process holds the connection from `port` to `front`."""
        inode = _inode(port, front)
        for owner, pid in self._pids.items():
            if inode and _holds(pid, f"socket:[{inode}]"):
                return owner
        return "nobody"


def _inode(port: int, front: int) -> str:
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[1].endswith(f":{port:04X}") and words[2].endswith(f":{front:04X}"):
            return words[9]
    return ""


def _holds(pid: int, socket: str) -> bool:
    with suppress(OSError):
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if str(entry.readlink()) == socket:
                    return True
    return False
