"""How a runner is asked to stop, and what it leaves behind: small files in its state folder.

SIGTERM is the request; a file beside it says more (`phalanx runner stop`). What came of it is written down before the
process ends, for whoever asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from msgspec import MsgspecError, Struct, json

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
    drained: bool
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
        (folder / name).unlink(missing_ok=True)
    _write(folder / PID, this_process())
    try:
        yield
    finally:
        (folder / PID).unlink(missing_ok=True)


def this_process() -> Process:
    fields = Path("/proc/self/stat").read_text("utf-8")
    return Process(int(fields.split()[0]), int(fields.rpartition(")")[2].split()[19]))


def runner_of(folder: Path) -> Process | None:
    """The runner that said last that it is on duty here; it may be dead."""
    return _read(folder / PID, Process)


def ask(folder: Path, request: StopRequest) -> None:
    _write(folder / REQUEST, request)


def asked(folder: Path) -> StopRequest | None:
    return _read(folder / REQUEST, StopRequest)


def leave_word(folder: Path, farewell: Farewell) -> None:
    with suppress(OSError):  # on a full disk it stops all the same
        _write(folder / FAREWELL, farewell)


def last_word(folder: Path) -> Farewell | None:
    return _read(folder / FAREWELL, Farewell)


def _read(path: Path, kind: type[T]) -> T | None:
    with suppress(OSError, MsgspecError):
        return json.decode(path.read_bytes(), type=kind)
    return None


def _write(path: Path, what: Struct) -> None:
    draft = path.with_suffix(f"{path.suffix}.new")
    draft.write_bytes(json.encode(what))
    draft.chmod(0o600)
    draft.replace(path)
