"""How a runner is asked to stop, and what it leaves behind: small files in its state folder.

SIGTERM is the request; a file beside it says more (`phalanx runner stop`). What came of it is written down before the
process ends, for whoever asked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from msgspec import MsgspecError, Struct, json

from phalanx.runner import statefiles
from phalanx.runner.keeper.spawn import KEY_VARIABLE

PID, REQUEST, FAREWELL = "runner.pid", "runner.stop", "runner.stopped"
KEEP_S_MAX = 3600.0
T = TypeVar("T")


class StopRequest(Struct, frozen=True):
    """How to stop: end the tasks and report each end, or leave them to the keeper, for longer than usual."""

    drain: bool = False
    keep_s: float = 0.0


class Farewell(Struct, frozen=True):
    """What a runner left behind when it stopped."""

    tasks: int  # that run on; with `drained` those that were ended
    drained: bool  # it was to end them, and none is left
    told: bool  # the coordinator knows, and has granted what was asked
    lease_s: float  # how long they run on without a runner
    unreported: int = 0  # ends that no coordinator has taken note of; the next runner tells them


class Process(Struct, frozen=True):
    """Who the runner of a folder is; pids are used again, a pid and a starting time are not."""

    pid: int
    started: int  # clock ticks after boot


@contextmanager
def on_duty(folder: Path) -> Iterator[None]:
    """Say who the runner of this folder is, for as long as it lives."""
    for name in (REQUEST, FAREWELL):
        statefiles.remove(folder / name)
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)  # by which `is_runner_of` knows us
    try:
        with suppress(OSError):  # on a full disk it runs all the same; only `runner stop` does not find it
            _write(folder / PID, this_process())
        yield
    finally:
        statefiles.remove(folder / PID)
        os.close(held)


def this_process() -> Process:
    fields = Path("/proc/self/stat").read_text("utf-8")
    return Process(int(fields.split()[0]), int(fields.rpartition(")")[2].split()[19]))


def runner_of(folder: Path) -> Process | None:
    """The runner that said last that it is on duty here; it may be dead."""
    return _read(folder / PID, Process)


def is_runner_of(folder: Path, pid: int) -> bool:
    """Whether this process may be the runner of a folder: of the folder's user, holding it open, and no task's.

    Tasks can write the file that names it, and must not choose whom somebody else signals.
    """
    try:
        own = folder.stat()
        process = Path("/proc", str(pid))
        if process.stat().st_uid != own.st_uid or _is_of_an_attempt(process):
            return False
        return any(_is_same(each, own) for each in (process / "fd").iterdir())
    except OSError:
        return False


def _is_of_an_attempt(process: Path) -> bool:
    mark = f"{KEY_VARIABLE}=".encode()
    return any(each.startswith(mark) for each in (process / "environ").read_bytes().split(b"\0"))


def _is_same(link: Path, own: os.stat_result) -> bool:
    try:
        return os.path.samestat(link.stat(), own)
    except OSError:  # closed meanwhile, or leading to nothing that has a name
        return False


def ask(folder: Path, request: StopRequest) -> None:
    _write(folder / REQUEST, request)


def withdraw(folder: Path) -> None:
    """Nobody was asked after all."""
    statefiles.remove(folder / REQUEST)


def asked(folder: Path) -> StopRequest | None:
    return _read(folder / REQUEST, StopRequest)


def leave_word(folder: Path, farewell: Farewell) -> None:
    with suppress(OSError):  # on a full disk it stops all the same
        _write(folder / FAREWELL, farewell)


def last_word(folder: Path) -> Farewell | None:
    return _read(folder / FAREWELL, Farewell)


def _read(path: Path, kind: type[T]) -> T | None:
    with suppress(MsgspecError):
        return json.decode(statefiles.read(path), type=kind)
    return None


def _write(path: Path, what: Struct) -> None:
    statefiles.write(path, json.encode(what))
