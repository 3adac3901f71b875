"""The runner's connections to its coordinator: one for control, one for logs, both dialled by the runner.

A connection that breaks is dialled again with growing pauses. What is said on it is decided in `agent` and
`logroad`; here are only sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from phalanx.api import wire
from phalanx.diary import diary

log = diary("runner")
PAUSE_FIRST_S, PAUSE_MAX_S = 0.05, 2.0
DIAL_WITHIN_S = 5.0


class Speaker(Protocol):
    """Whoever speaks on a connection."""

    def connected(self, wire_out: Wire) -> None: ...

    def received(self, message: wire.Message) -> None: ...

    def settled(self) -> None:
        """All that had arrived has been received."""
        ...

    def disconnected(self) -> None: ...


class Wire(asyncio.Protocol):
    """One connection, from dialling to its end."""

    def __init__(self, speaker: Speaker) -> None:
        self._speaker = speaker
        self._unpacker = wire.Unpacker()
        self._transport: asyncio.Transport | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without being one by name
        self._speaker.connected(self)

    def data_received(self, data: bytes) -> None:
        try:
            for message in self._unpacker.feed(data):
                self._speaker.received(message)
        except wire.WireError as error:
            log.warning("the coordinator does not speak our protocol", error=str(error))
            self.close()
        self._speaker.settled()

    def connection_lost(self, exc: Exception | None) -> None:
        self._speaker.disconnected()
        if not self.ended.done():
            self.ended.set_result(None)

    def send(self, message: wire.Message) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(wire.pack(message))

    @property
    def local_address(self) -> str:
        """Our own end of the connection: how others reach us too, unless something stands in between."""
        name = self._transport.get_extra_info("sockname") if self._transport is not None else None
        return name[0].partition("%")[0] if isinstance(name, tuple) else ""

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once, whatever is still to be written: nobody reads it."""
        if self._transport is not None:
            self._transport.abort()


async def keep_connected(
    host: str, port: int, speaker: Speaker, jitter: Callable[[], float], give_up: Callable[[], bool]
) -> None:
    """Dial, speak, and dial again, until `give_up` says so."""
    pause_s = PAUSE_FIRST_S
    loop = asyncio.get_running_loop()
    while not give_up():
        try:
            async with asyncio.timeout(DIAL_WITHIN_S):
                _, connection = await loop.create_connection(lambda: Wire(speaker), host, port)
            began = loop.time()
            await connection.ended
            pause_s = PAUSE_FIRST_S if loop.time() - began > 1.0 else min(PAUSE_MAX_S, pause_s * 2)
        except (OSError, TimeoutError) as error:
            log.debug("cannot reach the coordinator", host=host, port=port, error=str(error))
            pause_s = min(PAUSE_MAX_S, pause_s * 2)
        await asyncio.sleep(pause_s * (0.5 + jitter()))
