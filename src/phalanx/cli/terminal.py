"""The terminal of a user during a session: raw mode, its size, its keys, and streams that are copied completely.

Where the streams go is left to `phalanx.client.session_connection`, which command is run to `exec.py`.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from phalanx.cli.output import note
from phalanx.client.session_connection import AsyncExecSession, open_session
from phalanx.errors import BadRequest, Unavailable

if TYPE_CHECKING:
    from phalanx.api.schema.sessions import SessionTicket
    from phalanx.client.session_calls import SessionAccess

STDIN, STDOUT, STDERR = 0, 1, 2
PIECE_BYTES = 32 * 1024
DETACH_KEYS = "ctrl-]"
DETACHED = 0
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)


class Detached(Exception):
    """The user typed the keys that leave a session."""


class KeyScanner:
    """Finds the keys that leave a session in what is typed. Those typed so far are held back until it is clear."""

    def __init__(self, keys: str) -> None:
        self._wanted = read_keys(keys)
        self._seen = 0

    def scan(self, typed: bytes) -> bytes:
        """What is to be sent; raises Detached."""
        if not self._wanted:
            return typed
        sent = bytearray()
        for byte in typed:
            if byte == self._wanted[self._seen]:
                self._seen += 1
                if self._seen == len(self._wanted):
                    raise Detached
                continue
            sent += self._wanted[: self._seen]
            self._seen = 0
            if byte == self._wanted[0]:
                self._seen = 1
            else:
                sent.append(byte)
        return bytes(sent)


def read_keys(text: str) -> bytes:
    """`ctrl-p,ctrl-q` or `ctrl-]` or `a` as bytes; empty: none."""
    found = bytearray()
    for word in filter(None, text.lower().split(",")):
        key = word.removeprefix("ctrl-")
        code = ord(key) if len(key) == 1 and key.isascii() else -1
        if word.startswith("ctrl-") and 0x40 <= ord(key[:1].upper() or "\0") <= 0x5F and code >= 0:
            found.append(ord(key.upper()) & 0x1F)
        elif len(word) == 1 and code >= 0:
            found.append(code)
        else:
            raise BadRequest(
                f"--detach-keys {text!r}: {word!r} is not a key: write a letter, or ctrl- and one of a-z [ ] ^ _"
            )
    return bytes(found)


def size_of(fd: int = STDIN) -> tuple[int, int]:
    """Rows and columns; zeros if it is no terminal."""
    try:
        columns, rows = os.get_terminal_size(fd)
    except OSError:
        return 0, 0
    return rows, columns


@contextmanager
def raw_mode(fd: int = STDIN) -> Iterator[None]:
    """Within this block keys are not interpreted here: Ctrl-C is for the command."""
    before = termios.tcgetattr(fd)
    try:
        tty.setraw(fd)
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def run_session(
    access: SessionAccess, ticket: SessionTicket, *, terminal: bool, stdin: bool, keys: str
) -> int:
    """Run a session with the streams of this process; the exit code of its command."""
    scanner = KeyScanner(keys)
    try:
        return asyncio.run(_session(access, ticket, scanner, terminal=terminal, stdin=stdin))
    except Detached:
        note(f"left {ticket.task}; its command was told to hang up")
        return DETACHED


async def _session(
    access: SessionAccess, ticket: SessionTicket, scanner: KeyScanner, *, terminal: bool, stdin: bool
) -> int:
    async with await open_session(access, ticket) as session:
        await session.started.wait()
        copying = asyncio.ensure_future(_copy_output(session))
        leaving: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with _terminal(session, scanner, leaving) if terminal else _signals(session, leaving):
            if stdin and not terminal:
                _feed_in_thread(session)
            await asyncio.wait({copying, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not copying.done():
                copying.cancel()
                leaving.result()
            await copying
    if session.exit is not None and session.exit.task_ended:
        note(f"task {ticket.task} has ended, and its command with it")
    return session.exit_code or 0


async def _copy_output(session: AsyncExecSession) -> None:
    loop = asyncio.get_running_loop()
    async for stream, piece in session:
        # In a thread, because a pipe that nobody reads blocks, and signs of life have to go on.
        await loop.run_in_executor(None, _write, STDERR if stream == "stderr" else STDOUT, piece)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        try:
            view = view[os.write(fd, view) :]
        except BlockingIOError:
            select.select([], [fd], [])


def _feed_in_thread(session: AsyncExecSession) -> None:
    """Standard input may be a file, a pipe or a terminal: only a thread can wait for each of them."""
    loop = asyncio.get_running_loop()

    def feed() -> None:
        with suppress(RuntimeError, OSError, Unavailable):  # the loop may have ended meanwhile
            while piece := os.read(STDIN, PIECE_BYTES):
                asyncio.run_coroutine_threadsafe(session.write(piece), loop).result()
            asyncio.run_coroutine_threadsafe(session.end_input(), loop).result()

    threading.Thread(target=feed, daemon=True).start()


@contextmanager
def _terminal(
    session: AsyncExecSession, scanner: KeyScanner, leaving: asyncio.Future[None]
) -> Iterator[None]:
    """Raw mode; keys and changes of the size are sent."""
    loop, typed = asyncio.get_running_loop(), asyncio.Queue[bytes]()
    sending = asyncio.ensure_future(_send_typed(session, typed))

    def read() -> None:
        try:
            data = os.read(STDIN, PIECE_BYTES)
            if not data:
                loop.remove_reader(STDIN)
                return
            if rest := scanner.scan(data):
                typed.put_nowait(rest)
        except Detached as error:
            if not leaving.done():
                leaving.set_exception(error)
        except OSError:
            loop.remove_reader(STDIN)

    def resized() -> None:
        sent = loop.create_task(session.resize(*size_of()))
        sent.add_done_callback(lambda _: None)

    with raw_mode():
        loop.add_reader(STDIN, read)
        loop.add_signal_handler(signal.SIGWINCH, resized)
        resized()
        try:
            yield
        finally:
            loop.remove_reader(STDIN)
            loop.remove_signal_handler(signal.SIGWINCH)
            sending.cancel()


async def _send_typed(session: AsyncExecSession, typed: asyncio.Queue[bytes]) -> None:
    while True:
        await session.write(await typed.get())


@contextmanager
def _signals(session: AsyncExecSession, leaving: asyncio.Future[None]) -> Iterator[None]:
    """A signal is passed on to the command; the same again leaves."""
    loop, seen = asyncio.get_running_loop(), set[int]()

    def received(number: signal.Signals) -> None:
        if number in seen and not leaving.done():
            leaving.set_exception(KeyboardInterrupt())
        seen.add(number)
        sent = loop.create_task(session.signal(number))
        sent.add_done_callback(lambda _: None)

    for number in FORWARDED:
        loop.add_signal_handler(number, received, number)
    try:
        yield
    finally:
        for number in FORWARDED:
            loop.remove_signal_handler(number)


def is_terminal() -> bool:
    """Whether this process has a terminal to type at and to show something on."""
    return sys.stdin.isatty() and sys.stdout.isatty()
