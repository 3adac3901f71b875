"""What the runner's state machine asks of its shell, as values."""

from __future__ import annotations

from msgspec import Struct

from phalanx.core.model.job import JobId
from phalanx.core.model.orders import AttemptKey, Brief, Roll, Start


class Spawn(Struct, frozen=True):
    """Start a process for this attempt, as soon as those before it in its lane have ended, and not too late.

    If it is held, only get it ready then, and say so.
    """

    start: Start
    brief: Brief
    roll: Roll | None = None
    held: bool = False
    not_after: float | None = None


class Prepare(Struct, frozen=True):
    """Get the image of this attempt ready, then say so (`prepared`) or why it cannot be (`process_refused`)."""

    start: Start
    brief: Brief


class StopPreparing(Struct, frozen=True):
    """Nobody waits for its image any more."""

    key: AttemptKey


class Release(Struct, frozen=True):
    """Start the process of one that is ready and held, unless it is too late."""

    key: AttemptKey
    not_after: float | None = None


class Halt(Struct, frozen=True):
    """End its processes: politely, then after the grace not so."""

    key: AttemptKey
    grace_s: float


class Retract(Struct, frozen=True):
    """Take it back, if it still waits for its lane."""

    key: AttemptKey


class Freeze(Struct, frozen=True):
    key: AttemptKey
    frozen: bool


class Forget(Struct, frozen=True):
    """The coordinator has taken note of this end; nothing need remember it."""

    key: AttemptKey


class ForgetBrief(Struct, frozen=True):
    """No attempt of this group will come any more."""

    job: JobId
    group: int


RunnerEffect = Prepare | StopPreparing | Spawn | Release | Halt | Retract | Freeze | Forget | ForgetBrief
