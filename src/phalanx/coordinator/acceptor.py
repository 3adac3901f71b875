"""The TLS acceptor of a port: which connections it admits, how long it waits, and how many may be in a handshake.

A stranger who says nothing, or who is slow in the handshake, is sent away before any other part hears of him, and the
one who has stood there longest makes room for the next. One who does not speak TLS where it is spoken is told so in his
own words. Few are let in in each round of the loop. What is said afterwards is the protocols' business.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

from phalanx.api.server.limits import Unauthenticated
from phalanx.logger import logger
from phalanx.tls import explain

log = logger("coordinator")
FIRST_WORD_WITHIN_S = 10.0
HANDSHAKE_WITHIN_S = 10.0
SHUTDOWN_WITHIN_S = 2.0
HANDSHAKES_MAX = 512
ACCEPTS_PER_ROUND, GREETINGS_PER_ROUND = 16, 4  # without TLS, and with it: a handshake costs a millisecond
BACKLOG = 4096  # who does not fit is not refused but lost, and comes again after a second
TELL_OTHER_S, TELL_AGAIN_S = 1.0, 60.0
TLS_HANDSHAKE = b"\x16"
RECORD_HEAD, RECORD_MAX = 5, 4096  # a hello is some hundred bytes
LOOK_AGAIN_S = 0.02


class Acceptor:
    """Listens at one port. It has what uvicorn asks of a server: `close` and `wait_closed`."""

    def __init__(
        self,
        listening: list[socket.socket],
        context: Callable[[], ssl.SSLContext] | None,
        make: Callable[[], asyncio.Protocol],
        plain_words: bytes,
        unauthenticated: int,
    ) -> None:
        """`context` is asked for at each connection; `plain_words` is the answer to one without TLS."""
        self.sockets = listening
        self._context = context
        self._make = make
        self._plain_words = plain_words
        self._per_round = ACCEPTS_PER_ROUND if context is None else GREETINGS_PER_ROUND
        self._coming: Unauthenticated[asyncio.Task[None]] = Unauthenticated(max(1, unauthenticated // 2))
        self._greeting: Unauthenticated[asyncio.Task[None]] = Unauthenticated(max(1, unauthenticated // 2))
        self._told: tuple[str, str] = ("", "")
        self._told_at = -TELL_AGAIN_S
        self._addresses = [asyncio.ensure_future(self._listen(each)) for each in listening]

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        context: Callable[[], ssl.SSLContext] | None,
        make: Callable[[], asyncio.Protocol],
        plain_words: bytes = b"",
        unauthenticated: int = HANDSHAKES_MAX,
    ) -> Acceptor:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        listening = [_listening(family, place) for family, _, _, _, place in dict.fromkeys(found)]
        return cls(listening, context, make, plain_words, unauthenticated)

    def close(self) -> None:
        for task in [*self._addresses, *self._coming, *self._greeting]:
            task.cancel()
        for each in self.sockets:
            each.close()

    async def wait_closed(self) -> None:
        await asyncio.gather(*self._addresses, *self._coming, *self._greeting, return_exceptions=True)

    async def _listen(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        taken = 0
        while True:
            try:
                caller, place = await loop.sock_accept(listening)
            except OSError as error:  # out of file descriptors: connections that end give theirs back
                self._tell("", f"a connection could not be taken: {error}")
                await asyncio.sleep(0.1)
                continue
            self._take_in(caller, str(place[0]))
            taken += 1
            if taken % self._per_round == 0:  # new connections wait, not those that are open
                await asyncio.sleep(0)

    def _take_in(self, caller: socket.socket, address: str) -> None:
        task = asyncio.get_running_loop().create_task(self._receive(caller, address))
        _one_less(self._coming.add(address, task))
        task.add_done_callback(self._coming.remove)
        task.add_done_callback(self._greeting.remove)

    async def _receive(self, caller: socket.socket, caller_name: str) -> None:
        """From the connection to the end of the handshake, if there is one."""
        try:
            caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is None:
                await asyncio.get_running_loop().connect_accepted_socket(self._make, caller)
                return
            async with asyncio.timeout(FIRST_WORD_WITHIN_S):
                first = await _first_words(caller)
            if first and not first.startswith(TLS_HANDSHAKE):
                await _say_and_close(caller, self._plain_words)
                return
            if first:
                self._has_greeted(caller_name)
                await asyncio.get_running_loop().connect_accepted_socket(
                    self._make,
                    caller,
                    ssl=self._context(),
                    ssl_handshake_timeout=HANDSHAKE_WITHIN_S,
                    ssl_shutdown_timeout=SHUTDOWN_WITHIN_S,
                )
                return
        except (OSError, TimeoutError) as error:
            said = explain(error)
            self._tell(caller_name, said.text if said else str(error) or "silence")
        except asyncio.CancelledError:
            _close(caller)
            raise
        _close(caller)

    def _has_greeted(self, address: str) -> None:
        """The handshake has begun: this connection no longer counts as a silent one."""
        task = asyncio.current_task()
        assert task is not None
        self._coming.remove(task)
        _one_less(self._greeting.add(address, task))

    def _tell(self, caller: str, why: str) -> None:
        """Each new message once, so that strangers cannot fill the log; a repeated one is logged now and then."""
        now = asyncio.get_running_loop().time()
        pause_s = TELL_AGAIN_S if (caller, why) == self._told else TELL_OTHER_S
        if now - self._told_at >= pause_s:
            log.info("connection refused", caller=caller, error=why)
            self._told, self._told_at = (caller, why), now


def _listening(family: int, place: tuple[object, ...]) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    try:
        made.bind(place)
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        raise OSError(
            error.errno, f"port {place[1]} of {place[0]} cannot be used: {error.strerror}"
        ) from None
    return made


def _close(caller: socket.socket) -> None:
    """End it, also for a transport that has begun a handshake on it and would keep the socket open.

    What was said is taken first: closing with unread words looks like a failure to the other side.
    """
    with suppress(OSError):
        caller.recv(65_536)
    with suppress(OSError):
        caller.shutdown(socket.SHUT_RDWR)
    caller.close()


def _one_less(oldest: asyncio.Task[None] | None) -> None:
    if oldest is not None:
        oldest.cancel()


async def _first_words(caller: socket.socket) -> bytes:
    """Look at the first words without taking them, for the handshake wants to read them, too.

    Of TLS that is the whole first record: who leaves it half said is still a stranger who says nothing.
    """
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(caller, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(caller)
    while (words := caller.recv(RECORD_MAX, socket.MSG_PEEK)).startswith(TLS_HANDSHAKE):
        if len(words) >= RECORD_HEAD and len(words) >= min(
            RECORD_MAX, RECORD_HEAD + int.from_bytes(words[3:5], "big")
        ):
            break
        await asyncio.sleep(LOOK_AGAIN_S)
    return words


async def _say_and_close(caller: socket.socket, words: bytes) -> None:
    """Read what was said first: closing a socket with unread bytes would take our words back."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(1.0):
        await loop.sock_recv(caller, 65_536)
        await loop.sock_sendall(caller, words)
    caller.close()
