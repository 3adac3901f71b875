"""What every event carries, and the events that are about the log itself and about what a repair of it held back."""

from __future__ import annotations

from msgspec import Struct

from phalanx.core.model.ids import JobId


class Recorded(Struct, frozen=True, array_like=True, kw_only=True, tag=True, gc=False):
    """In the log an event is an array: its own fields, then these, then what later versions added (kw_only as well).

    So a field is added in a subclass that is kw_only, with a default, and old logs are read as before. Events are
    values without cycles, so the garbage collector need not look at them.
    """

    at: float
    cause: str = ""


class LogSettled(Recorded, frozen=True):
    """Writes whose answers were lost are behind us: what was kept of them is known, and nothing follows late.

    Its batch may leave numbers out; the log ended at `after` when it was written.
    """

    after: int


class LogRepaired(Recorded, frozen=True):
    """The log had a hole and an operator chose how to go on; what follows rests on an image saved with this."""

    after: int  # the last revision before the hole
    choice: str  # "hold" or "to-image"
    jobs: tuple[JobId, ...] = ()  # those that are held, or whose past since then is forgotten


class JobReleased(Recorded, frozen=True):
    """An operator lets a job run again that a repair held back."""

    job: JobId
