"""What a coordinator tells a runner, and what a runner answers: the words both state machines share.

Every order and report names an attempt by its key (job, position, number). Orders are idempotent: telling a
runner twice changes nothing. How they travel is `api/wire.py`'s business.
"""

from __future__ import annotations

from enum import IntEnum

from msgspec import Struct

from phalanx.core.model.ids import JobId
from phalanx.core.model.job import Command
from phalanx.core.model.resources import Grant
from phalanx.core.model.status import Why

AttemptKey = tuple[JobId, int, int]  # job, position of the task, number of the attempt (from 1)


def key_text(key: AttemptKey) -> str:
    """The key as one word, for journals and environments."""
    return f"{key[0]}/{key[1]}/{key[2]}"


def key_from_text(text: str) -> AttemptKey:
    job, position, number = text.split("/")
    return job, int(position), int(number)


class Brief(Struct, frozen=True, array_like=True, tag="brief"):
    """What all attempts of one job share; sent once per job and connection, before its first start."""

    job: JobId
    command: Command
    name: str
    queue: str
    batch: JobId
    tasks: int
    array: str | None
    grace_s: float
    time_limit_s: float | None


class Start(Struct, frozen=True, array_like=True, tag="start"):
    """Run this attempt with this grant. Attempts of one lane run one after another, in the order sent."""

    key: AttemptKey
    lane: int
    grant: Grant
    index: int | None  # the array index, if the job is an array
    restarts: int  # attempts before this one


class Stop(Struct, frozen=True, array_like=True, tag="stop"):
    """End this attempt and never start it. Answered by a report even if the runner never knew it."""

    key: AttemptKey
    why: Why
    grace_s: float


class Pause(Struct, frozen=True, array_like=True, tag="pause"):
    key: AttemptKey


class Resume(Struct, frozen=True, array_like=True, tag="resume"):
    key: AttemptKey


class Dismiss(Struct, frozen=True, array_like=True, tag="dismiss"):
    """The job is over: its brief may be forgotten."""

    job: JobId


Order = Brief | Start | Stop | Pause | Resume | Dismiss


class Exit(Struct, frozen=True, array_like=True):
    """How an attempt ended. `code` is None when no process of ours ended by itself."""

    why: Why
    code: int | None = None  # −N for signal N
    started_at: float | None = None
    ended_at: float | None = None
    message: str = ""
    stderr_tail: str = ""


class Started(Struct, frozen=True, array_like=True, tag="started"):
    key: AttemptKey
    at: float


class Ended(Struct, frozen=True, array_like=True, tag="ended"):
    key: AttemptKey
    exit: Exit


class Returned(Struct, frozen=True, array_like=True, tag="returned"):
    """Given back unstarted: the attempt before it in its lane takes long, and another node may be free."""

    key: AttemptKey


Report = Started | Ended | Returned


class Phase(IntEnum):
    """Where an attempt stands on its runner."""

    QUEUED = 0
    RUNNING = 1
    ENDED = 2  # the end is not yet acknowledged by a coordinator


class Disposition(IntEnum):
    """What became of a report. Only ACCEPTED changed anything; after any but STALE_EPOCH it may be forgotten."""

    ACCEPTED = 0
    DUPLICATE = 1
    STALE_EPOCH = 2
    STALE_LEASE = 3
    STALE_ATTEMPT = 4
    UNKNOWN = 5
