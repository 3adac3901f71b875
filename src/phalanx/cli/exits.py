"""The end of the process of a command: threads that still read, and an output without a reader.

Python ends a daemon thread where it next asks for the interpreter's lock, by unwinding its stack. In code of C++, such
as RE2, which gives the lock back while it works, that aborts the whole process. So a process in which such threads
live ends without them being asked.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import NoReturn

CLOSED_OUTPUT = 128 + signal.SIGPIPE  # as a shell has it of a program that SIGPIPE ends


class OutputClosed(Exception):
    """Our output has no reader any more. A BrokenPipeError would be taken by Typer, which then exits with 1."""


def discard_output() -> int:
    """What is still buffered goes nowhere, or Python would complain at exit. Returns the exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in filter(None, (sys.__stdout__, sys.__stderr__)):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(nowhere, stream.fileno())
    return CLOSED_OUTPUT


def leave(code: int) -> NoReturn:
    """End this process with an exit code."""
    others = [each for each in threading.enumerate() if each is not threading.main_thread()]
    if not others or not all(each.daemon for each in others):
        sys.exit(code)
    atexit._run_exitfuncs()  # noqa: SLF001 - os._exit leaves them out
    for stream in filter(None, (sys.stdout, sys.stderr)):  # what was closed before we began is None
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
