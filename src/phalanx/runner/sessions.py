"""The sessions of a runner: commands beside its attempts, and connections to their ports, asked for by a coordinator.

Each has a connection of its own to the coordinator, so that however much one carries, reports, heartbeats and logs
never wait behind it. A session ends with its command, with its attempt, or when its connection is lost, which is how
the coordinator says that the user is gone; then its processes are ended. How a process gets into an attempt is left to
`session_environment.py`, its descriptors to `session_process.py`.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

from phalanx.api.schema.session_frames import (
    BEAT_S,
    FROM_CLIENT,
    PIECE_BYTES,
    SIGNALS,
    ExitFrame,
    FrameKind,
    pack_error,
    pack_exit,
    pack_frame,
    read_frame,
    read_size,
)
from phalanx.core.model.orders import AttemptKey
from phalanx.duplex import Duplex
from phalanx.errors import PhalanxError, TooMany, Unavailable
from phalanx.link import wire
from phalanx.link.session_messages import OpenSession, SessionHello, SessionSpec, SessionTaken
from phalanx.logger import logger
from phalanx.runner.inputs import AttemptInputs
from phalanx.runner.session_environment import OTHER_ACCOUNT, AttemptLeader, Surroundings, enter, task_ended
from phalanx.runner.session_input import WaitingInput
from phalanx.runner.session_process import BeginFailure, SessionProcess, connect

log = logger("runner")
SESSIONS_MAX = 256
TAKEN_WITHIN_S = 10.0
ACCOUNT_WITHIN_S, LOOK_S = 2.0, 0.02
QUIET_S = 0.3  # after the end of a command, until output of what it left behind is no longer waited for
HANG_UP_S = 2.0  # between SIGHUP and SIGKILL
CLOSE_S = 10.0  # for the last frames to be sent

Dial = Callable[[], Awaitable[Duplex]]
Find = Callable[[AttemptKey], tuple[AttemptLeader, str | None] | None]


class RunnerSessions:
    """All sessions of one runner."""

    def __init__(
        self, node: str, token: Callable[[], str], find: Find, dial: Dial, inputs: AttemptInputs
    ) -> None:
        """`find` gives the leader of a running attempt and the folder its job names, `dial` a new connection."""
        self._node = node
        self._token = token
        self._find = find
        self._dial = dial
        self._inputs = inputs
        self._open: set[asyncio.Task[None]] = set()

    def open(self, asked: OpenSession) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(asked))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def close(self) -> None:
        """End all of them."""
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, asked: OpenSession) -> None:
        try:
            async with asyncio.timeout(TAKEN_WITHIN_S):
                connection = await self._dial()
                await self._introduce(connection, asked)
        except (OSError, TimeoutError, EOFError, wire.WireError) as error:
            log.warning("a session could not be opened", session=asked.id, error=str(error))
            return
        beating = asyncio.ensure_future(connection.beat(pack_frame(FrameKind.PING), BEAT_S))
        try:
            await self._carry_out(connection, asked)
        except PhalanxError as error:
            with suppress(ConnectionError):
                await connection.write(pack_error(error))
        except (ConnectionError, EOFError) as error:  # the user is gone, or the coordinator
            log.debug("a session was cut", session=asked.id, error=str(error))
        finally:
            beating.cancel()
            connection.close()
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(connection.lost), CLOSE_S)
            connection.abort()

    async def _introduce(self, connection: Duplex, asked: OpenSession) -> None:
        hello = SessionHello(wire.VERSION, self._token(), self._node, asked.id, asked.secret)
        await connection.write(wire.pack(hello))
        length = int.from_bytes(await connection.read_exactly(4), "big")
        if length > PIECE_BYTES:
            raise wire.WireError(f"an answer of {length} bytes")
        (answer,) = wire.Unpacker().feed(length.to_bytes(4, "big") + await connection.read_exactly(length))
        if not isinstance(answer, SessionTaken):
            connection.abort()
            raise wire.WireError(getattr(answer, "message", "the session was not taken"))

    async def _carry_out(self, connection: Duplex, asked: OpenSession) -> None:
        if len(self._open) > SESSIONS_MAX:
            raise TooMany(
                f"node {self._node} has {SESSIONS_MAX} sessions, as many as one node may",
                reason="TooManySessions",
            )
        if asked.spec.is_input:
            await self._inputs.serve(asked.key, connection)
            return
        found = self._find(asked.key)
        if found is None:
            raise task_ended()
        there = await _entered(*found)
        try:
            if asked.spec.port:
                await _forward(connection, asked.spec.port, there)
            else:
                await _exec(connection, asked.spec, there)
        finally:
            os.close(there.leader_fd)


async def _entered(leader: AttemptLeader, cwd: str | None) -> Surroundings:
    """The way to a leader. One that was just started becomes the account of its user a moment later."""
    until = asyncio.get_running_loop().time() + ACCOUNT_WITHIN_S
    while True:
        try:
            return enter(leader, cwd)
        except Unavailable as error:
            if error.reason != OTHER_ACCOUNT or asyncio.get_running_loop().time() >= until:
                raise
        await asyncio.sleep(LOOK_S)


async def _exec(connection: Duplex, spec: SessionSpec, there: Surroundings) -> None:
    process = await SessionProcess.start(spec, there)
    if isinstance(process, BeginFailure):
        await connection.write(pack_frame(FrameKind.STDERR, f"phalanx: {process.message}\n".encode()))
        await connection.write(pack_exit(ExitFrame(process.code)))
        return
    try:
        await connection.write(pack_frame(FrameKind.STARTED))
        await CommandSession(connection, process, there.leader_fd).run()
    finally:
        process.close()


class CommandSession:
    """The streams of one command, between its descriptors and a connection."""

    def __init__(self, connection: Duplex, process: SessionProcess, leader_fd: int) -> None:
        self._connection = connection
        self._process = process
        self._leader_fd = leader_fd
        self._input = WaitingInput(connection)

    async def run(self) -> None:
        """Until the command has ended, or its attempt, or the connection."""
        outputs = [
            asyncio.ensure_future(self._copy(1, FrameKind.STDOUT)),
            asyncio.ensure_future(self._copy(2, FrameKind.STDERR)),
        ]
        feeding = asyncio.ensure_future(self._feed())
        receiving = asyncio.ensure_future(self._receive())
        ending = asyncio.ensure_future(self._process.ended())
        task_ending = asyncio.ensure_future(_readable(self._leader_fd))
        everything = [*outputs, feeding, receiving, ending, task_ending]
        try:
            await asyncio.wait({receiving, ending, task_ending}, return_when=asyncio.FIRST_COMPLETED)
            if task_ending.done():
                self._process.kill()
            elif not ending.done():
                receiving.result()  # raises why the connection is of no use any more
            code = await ending
            await self._drain(outputs, receiving)
            is_over = task_ending.done() or _is_readable(self._leader_fd)
            end = ExitFrame(code if code >= 0 else 128 - code, max(0, -code), task_ended=is_over and code < 0)
            await self._connection.write(pack_exit(end))
        finally:
            for task in everything:
                task.cancel()
            await asyncio.gather(*everything, return_exceptions=True)
            if not ending.done() or ending.cancelled():
                await self._end()

    async def _end(self) -> None:
        """The user is gone, so its command has to go, too."""
        self._process.hang_up()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.ended(), HANG_UP_S)
        self._process.kill()

    async def _drain(self, outputs: list[asyncio.Task[None]], receiving: asyncio.Task[None]) -> None:
        """Send the rest of the output; what the command left behind may keep it open, and is not waited for."""
        while not all(each.done() for each in outputs):
            before = self._moved
            await asyncio.wait({*outputs}, timeout=QUIET_S)
            if receiving.done():
                receiving.result()
            if self._moved == before and not self._connection.unsent_bytes:
                return

    _moved = 0  # pieces of output

    async def _copy(self, number: int, kind: FrameKind) -> None:
        while piece := await self._process.read(number):
            self._moved += 1
            await self._connection.write(pack_frame(kind, piece))

    async def _feed(self) -> None:
        """Give the command its input as it takes it."""
        while (piece := await self._input.next()) is not None:
            if not await self._process.write(piece):
                self._input.discard()
        self._process.end_input()

    async def _receive(self) -> None:
        while True:
            kind, content = await read_frame(self._connection, FROM_CLIENT)
            match kind:
                case FrameKind.STDIN:
                    self._input.add(content)
                case FrameKind.STDIN_END:
                    self._input.end()
                case FrameKind.RESIZE:
                    self._process.resize(*read_size(content))
                case FrameKind.SIGNAL if len(content) == 1 and content[0] in SIGNALS:
                    self._process.signal(signal.Signals(content[0]))
                case _:
                    continue


async def _forward(connection: Duplex, port: int, there: Surroundings) -> None:
    sock = await connect(port, there)
    with sock:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _, target = await asyncio.get_running_loop().create_connection(Duplex, sock=sock)
        await connection.write(pack_frame(FrameKind.STARTED))
        waiting = WaitingInput(connection)
        copying = asyncio.ensure_future(_copy_out(connection, target))
        feeding = asyncio.ensure_future(_feed_target(waiting, target))
        receiving = asyncio.ensure_future(_receive_for(connection, waiting))
        task_ending = asyncio.ensure_future(_readable(there.leader_fd))
        everything = [copying, feeding, receiving, task_ending]
        try:
            await asyncio.wait({copying, receiving, task_ending}, return_when=asyncio.FIRST_COMPLETED)
            if task_ending.done():
                raise task_ended()
            if receiving.done():
                receiving.result()
            copying.result()
            # The task sends no more; what the client still sends goes on until it ends, too.
            await asyncio.wait(
                {feeding, receiving, task_ending, target.lost}, return_when=asyncio.FIRST_COMPLETED
            )
            await connection.write(pack_exit(ExitFrame(0)))
        finally:
            for task in everything:
                task.cancel()
            await asyncio.gather(*everything, return_exceptions=True)
            target.close()


async def _copy_out(connection: Duplex, target: Duplex) -> None:
    while piece := await target.read(PIECE_BYTES):
        await connection.write(pack_frame(FrameKind.STDOUT, piece))
    await connection.write(pack_frame(FrameKind.STDOUT_END))


async def _feed_target(waiting: WaitingInput, target: Duplex) -> None:
    while (piece := await waiting.next()) is not None:
        try:
            await target.write(piece)
        except ConnectionError:
            waiting.discard()
    target.end_writing()


async def _receive_for(connection: Duplex, waiting: WaitingInput) -> None:
    while True:
        waiting.take(*await read_frame(connection, FROM_CLIENT))


async def _readable(fd: int) -> None:
    """Wait until a descriptor can be read; a pidfd can when its process has ended."""
    copy = os.dup(fd)  # a loop watches a descriptor once
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(copy, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(copy)
        os.close(copy)


def _is_readable(fd: int) -> bool:
    watching = select.poll()
    watching.register(fd, select.POLLIN)
    return bool(watching.poll(0))
