"""How a runner is asked to stop, and what it leaves behind: small files in its state folder.

SIGTERM is the request; a file beside it has the details (`phalanx runner stop`). The outcome is written before the
process ends, for the caller of that command. The runner is recognised by the lock it holds (`claim.py`); its pid is
not written anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from msgspec import MsgspecError, Struct, json

from phalanx.runner import claim, state_files

REQUEST, OUTCOME = "runner.stop", "runner.stopped"
KEEP_S_MAX = 3600.0
T = TypeVar("T")


class StopRequest(Struct, frozen=True):
    """How to stop: end the tasks and report each end, or leave them to the keeper, for longer than usual."""

    drain: bool = False
    keep_s: float = 0.0


class StopOutcome(Struct, frozen=True):
    """The outcome of a stop."""

    tasks: int  # that still run; with `drained` those that were ended
    drained: bool  # it was to end them, and none is left
    told: bool  # the coordinator knows, and has granted what was asked
    lease_s: float  # how long they run on without a runner
    unreported: int = 0  # ends that no coordinator has acknowledged; the next runner reports them
    knew: bool = True  # False: its keeper had not answered yet, so what runs here is unknown


class Process(Struct, frozen=True):
    """The runner of a folder; pids are used again, a pid and a starting time are not."""

    pid: int
    started: int  # clock ticks after boot


@contextmanager
def on_duty(folder: Path) -> Iterator[None]:
    """Be the runner of this folder, for as long as it lives; raises Conflict if there is one."""
    with claim.claimed(folder):
        for name in (REQUEST, OUTCOME):
            state_files.remove(folder / name)
        yield


def runner_of(folder: Path) -> Process | None:
    """The living runner of this folder."""
    return next((Process(pid, claim.started(pid)) for pid in claim.runners(folder)), None)


def ask(folder: Path, request: StopRequest) -> None:
    _write(folder / REQUEST, request)


def withdraw(folder: Path) -> None:
    """Remove the request: the signal was not sent after all."""
    state_files.remove(folder / REQUEST)


def asked(folder: Path) -> StopRequest | None:
    return _read(folder / REQUEST, StopRequest)


def write_outcome(folder: Path, outcome: StopOutcome) -> None:
    with suppress(OSError):  # on a full disk it stops all the same
        _write(folder / OUTCOME, outcome)


def read_outcome(folder: Path) -> StopOutcome | None:
    return _read(folder / OUTCOME, StopOutcome)


def _read(path: Path, kind: type[T]) -> T | None:
    with suppress(MsgspecError):
        return json.decode(state_files.read(path), type=kind)
    return None


def _write(path: Path, what: Struct) -> None:
    state_files.write(path, json.encode(what))
