"""The process that runs calls, one after another. Its worker starts it with two pipes.

Its main thread runs the calls. A second thread reads, so that calls that are not begun can be returned while one takes
long. The worker that started it does everything else: so a call may hold the interpreter's lock, or kill its process,
and the cluster still hears from the worker. It imports as little as possible, because it is started often.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import traceback
from collections import OrderedDict
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from phalanx.worker.frames import (
    CallEnded,
    CallsReady,
    CallsReturned,
    FrameReader,
    ReturnCalls,
    RunCalls,
    ToProcess,
    write_frame,
)

FUNCTIONS_MAX = 64  # kept; the worker counts on it
RESULT_BYTES_MAX = 2 << 20  # as in api/schema/calls.py
TEXT_MAX = 16 << 10
PLAIN = frozenset({int, float, str, bytes, bool, type(None)})  # pickled alike by every pickler, and fast

Function = Callable[..., Any]
QueuedItem = tuple[int, str, bytes, bytes]  # number, digest, function, arguments


class CallProcess:
    """Reads calls, runs them, writes results."""

    def __init__(self, fd_in: int, fd_out: int) -> None:
        self._reader = FrameReader(fd_in, ToProcess)
        self._out = fd_out
        self._writing = threading.Lock()
        self._queue: SimpleQueue[QueuedItem] = SimpleQueue()
        self._pickled: OrderedDict[str, bytes] = OrderedDict()
        self._functions: OrderedDict[str, Function] = OrderedDict()

    def run(self) -> None:
        """Serve until the worker closes the pipe."""
        threading.Thread(target=self._read, daemon=True).start()
        self._send(CallsReady())
        while True:
            if self._queue.empty():
                _flush()
            self._send(self._ended(*self._queue.get()))

    def _read(self) -> None:
        while (messages := self._reader.read()) is not None:
            for message in messages:
                if isinstance(message, RunCalls):
                    function = self._pickled_function(message)
                    for id, arguments in message.calls:
                        self._queue.put((id, message.digest, function, arguments))
                elif isinstance(message, ReturnCalls):
                    self._send(CallsReturned(self._drained()))
        _flush()
        os._exit(0)  # the worker has ended, and so does whatever runs

    def _pickled_function(self, message: RunCalls) -> bytes:
        """The bytes of its function, kept as they come: the worker sends them once, whatever becomes of the calls."""
        if message.function:
            self._pickled[message.digest] = message.function
            if len(self._pickled) > FUNCTIONS_MAX:
                self._pickled.popitem(last=False)
        return self._pickled[message.digest]

    def _drained(self) -> list[int]:
        ids: list[int] = []
        while True:
            try:
                ids.append(self._queue.get_nowait()[0])
            except Empty:
                return ids

    def _ended(self, id: int, digest: str, pickled: bytes, arguments: bytes) -> CallEnded:
        try:
            function = self._function(digest, pickled)
            args, kwargs = pickle.loads(arguments)  # noqa: S301 - from the user whose job this is
        except BaseException as error:
            return _raised(id, error, "the call could not be unpickled here")
        try:
            value = function(*args, **kwargs)
        except BaseException as error:  # whatever a call raises is its result
            return _raised(id, error)
        return _returned(id, value)

    def _function(self, digest: str, pickled: bytes) -> Function:
        found = self._functions.get(digest)
        if found is None:
            found = self._functions[digest] = pickle.loads(pickled)  # noqa: S301
            if len(self._functions) > FUNCTIONS_MAX:
                self._functions.popitem(last=False)
        return found

    def _send(self, message: CallsReady | CallEnded | CallsReturned) -> None:
        with self._writing:
            write_frame(self._out, message)


def pickled(value: object) -> bytes:
    """The value as bytes; functions and classes of `__main__` by value. Raises what a pickler raises."""
    if type(value) in PLAIN:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    import cloudpickle

    found: bytes = cloudpickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return found


def _returned(id: int, value: object) -> CallEnded:
    try:
        found = pickled(value)
    except BaseException as error:  # a pickler raises whatever the object does
        text = f"the result, of the type {type(value).__name__}, cannot be pickled: {error!r}"
        return CallEnded(id, "failed", b"", text[:TEXT_MAX], "ResultNotPicklable")
    if len(found) > RESULT_BYTES_MAX:
        text = f"the result has {len(found)} bytes when pickled, at most {RESULT_BYTES_MAX} are allowed"
        return CallEnded(id, "failed", b"", text, "ResultTooLarge")
    return CallEnded(id, "returned", found)


def _raised(id: int, error: BaseException, note: str = "") -> CallEnded:
    """The error with its traceback as text, without our own frame."""
    trace = error.__traceback__ if error.__traceback__ is None else error.__traceback__.tb_next
    text = "".join(traceback.format_exception(type(error), error, trace))
    if note:
        text = f"{note}:\n{text}"
    if len(text) > TEXT_MAX:
        text = text[: TEXT_MAX // 2 - 20] + "\n[...]\n" + text[-TEXT_MAX // 2 + 20 :]
    try:
        found = pickled(error)
        pickle.loads(found)  # noqa: S301 - some can be pickled and not be read
    except BaseException:  # then its text has to do
        found = b""
    return CallEnded(id, "raised", found if len(found) <= RESULT_BYTES_MAX else b"", text)


def _flush() -> None:
    """Let what calls have printed reach the log of the task."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # closed by a call
            continue


def main() -> None:
    """Run calls from the pipe in the first argument, with results into that of the second."""
    import cloudpickle  # noqa: F401 - if it is missing, that is said before the first call

    fd_in, fd_out = int(sys.argv[1]), int(sys.argv[2])
    os.set_inheritable(fd_in, False)
    os.set_inheritable(fd_out, False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    CallProcess(fd_in, fd_out).run()
