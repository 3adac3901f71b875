"""A supervisor in the background: it leaves the terminal and reports once whether it started."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

import msgspec

from phalanx.cli.child import redirect
from phalanx.errors import PhalanxError, Unavailable


class StartReport(msgspec.Struct):
    """How it went: a text to print, or an error."""

    text: str = ""
    error: str = ""
    hint: str = ""
    exit_code: int = 0


def detached(work: Callable[[Callable[[str], None]], None], log: Path) -> StartReport:
    """Run `work` in the background, until it says something with its argument or raises an error."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _leave(work, os.fdopen(writing, "wb"), log)
    os.close(writing)
    os.waitpid(pid, 0)
    with os.fdopen(reading, "rb") as answer:
        told = answer.readline()
    if not told:
        raise Unavailable("the cluster did not start", hint=f"see {log}")
    return msgspec.json.decode(told, type=StartReport)


def _leave(work: Callable[[Callable[[str], None]], None], answer: IO[bytes], log: Path) -> None:
    """Fork again, so that no terminal can ever become ours, and live on as the grandchild."""
    os.setsid()
    if os.fork():
        os._exit(0)
    code = 1
    try:
        redirect(log)
        work(lambda text: _tell(answer, StartReport(text=text)))
        code = 0
    except PhalanxError as error:
        print(f"error: {error.detail}", file=sys.stderr)
        code = error.exit_code
        _tell(answer, StartReport(error=error.detail, hint=error.hint, exit_code=code))
    finally:
        sys.stderr.flush()
        os._exit(code)


def _tell(answer: IO[bytes], report: StartReport) -> None:
    if not answer.closed:
        answer.write(msgspec.json.encode(report) + b"\n")
        answer.close()
