"""The TCP connections of the gRPC port: whose they are, and which of them are closed so that others find room.

gRPC accepts connections by itself and says nothing of them until a call comes, so they are found among the open files
of this process. One on which nobody has shown a token for a while is closed; where there are many, those without a
call go first, the oldest one of the user or unknown address with the most. A call in progress is never cut off here.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

FILES = Path("/proc/self/fd")
TOKEN_WITHIN_S = 10.0
LOOK_EVERY_S = 0.5
LOOKING_SHARE = 60  # looking takes at most this part of the time
# Given, so that none is asked for its own kind, which would take most of the time. Addresses of version 4 fit in.
_ANY = socket.AF_INET6, socket.SOCK_STREAM, 0


class Connection(Struct):
    """One connection, by what was heard on it."""

    since: float
    inode: int = 0  # of its socket, once it was found: another connection may come from the same port later
    user: str = ""  # empty: nobody has shown a token
    calls: int = 0


class RpcConnections:
    """All connections of one port, by the address of the other side (host:port)."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, Connection] = {}
        self._looking: asyncio.Task[None] | None = None

    def begin(self, peer: str, user: str) -> None:
        """A call of a user has begun."""
        found = self._known.setdefault(peer, Connection(asyncio.get_running_loop().time()))
        found.user = user
        found.calls += 1

    def end(self, peer: str) -> None:
        if (found := self._known.get(peer)) is not None:
            found.calls -= 1

    def watch(self, port: int) -> None:
        """Look at the connections of this port from now on."""
        if FILES.is_dir():
            self._looking = asyncio.create_task(self._watch(port))

    async def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _watch(self, port: int) -> None:
        clock, pause_s = asyncio.get_running_loop().time, LOOK_EVERY_S
        while True:
            await asyncio.sleep(pause_s)
            began = clock()
            found = await asyncio.to_thread(connections_of, port)
            inodes = {peer: inode for peer, (_, inode) in found.items()}
            for peer in self.chosen(inodes, began):
                _shut(found[peer][0], port, peer)
            pause_s = max(LOOK_EVERY_S, LOOKING_SHARE * (clock() - began))

    def chosen(self, peers: Mapping[str, int], now: float) -> list[str]:
        """Which of these connections, by their other side and inode, are to be closed."""
        for peer in [each for each, known in self._known.items() if each not in peers and not known.calls]:
            del self._known[peer]
        for peer, inode in peers.items():
            known = self._known.setdefault(peer, Connection(now))
            if known.inode not in (0, inode) and not known.calls:
                known = self._known[peer] = Connection(now)
            known.inode = inode
        idle = {peer: known for peer in peers if not (known := self._known[peer]).calls}
        late = {peer for peer, each in idle.items() if not each.user and now - each.since >= TOKEN_WITHIN_S}
        left = len(peers) - len(late)
        if left > self._most * 3 // 4:
            late.update(_crowded({at: idle[at] for at in idle.keys() - late}, left - self._most // 2))
        return sorted(late)


def _crowded(idle: dict[str, Connection], count: int) -> list[str]:
    """So many connections without a call, one after another the oldest of whoever has the most."""
    crowds: dict[tuple[bool, str], list[str]] = {}
    for peer, each in sorted(idle.items(), key=lambda pair: pair[1].since, reverse=True):
        owner = (True, each.user) if each.user else (False, peer.rpartition(":")[0])
        crowds.setdefault(owner, []).append(peer)
    largest = [(-len(crowd), owner) for owner, crowd in crowds.items()]
    heapq.heapify(largest)
    going: list[str] = []
    while largest and len(going) < count:
        size, owner = heapq.heappop(largest)
        going.append(crowds[owner].pop())
        if size + 1:
            heapq.heappush(largest, (size + 1, owner))
    return going


def connections_of(port: int) -> dict[str, tuple[int, int]]:
    """The open connections to a port of this process: who is at the other end, the descriptor and the inode."""
    found: dict[str, tuple[int, int]] = {}
    with os.scandir(FILES) as entries:
        numbers = [int(each.name) for each in entries]
    for number in numbers:
        with suppress(OSError):  # closed meanwhile, or no connection
            each = socket.socket(*_ANY, number)
            try:
                if peer := _peer(each, port):
                    found[peer] = number, os.fstat(number).st_ino
            finally:
                each.detach()  # it is gRPC's
    return found


def _shut(number: int, port: int, peer: str) -> None:
    """End a connection, if the descriptor still leads to it. gRPC sees that it ended, and closes it."""
    with suppress(OSError), socket.socket(fileno=os.dup(number)) as each:
        if _peer(each, port) == peer:
            each.shutdown(socket.SHUT_RDWR)


def _peer(each: socket.socket, port: int) -> str:
    """Who is at the other end of a connection to this port, as gRPC writes it; empty if it is none.

    An address of version 4 is written as one also where both versions are listened to.
    """
    try:
        place = each.getsockname()
        if not isinstance(place, tuple) or place[1] != port:
            return ""
        host, number = each.getpeername()[:2]
    except OSError:
        return ""
    host = host.removeprefix("::ffff:")
    return f"[{host}]:{number}" if ":" in host else f"{host}:{number}"
