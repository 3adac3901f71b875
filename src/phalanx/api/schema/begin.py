"""When a job is to begin: as requests carry it, an instant or so long from now, and as people write it where they are.

A request names an instant: a date and a time with its zone, or seconds since 1970; `2h` or `+2h` counts from when it
arrives. A clock time such as 18:00 means something only where somebody looks at a clock, so a client puts it into an
instant, in its own zone, before it asks. One that has passed is the next day's.
"""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta

from phalanx.api.schema.fields import read_duration, shown
from phalanx.core.model.amounts import SECONDS_MAX, parse_seconds
from phalanx.errors import BadRequest, Unprocessable

NOW = "now"
_LATER = ("+", "now+")  # the second as Slurm writes it
_EPOCH_MIN = 1_000_000_000  # a smaller number is no instant: somebody meant so many seconds from now
_CLOCK = re.compile(r"(?:(today|tomorrow)[ T]?)?([0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?)?", re.IGNORECASE)
_DURATION = re.compile(
    r"(?:[0-9]+(?:\.[0-9]+)?[a-z]+)+", re.IGNORECASE
)  # 5 alone might be an hour or minutes
_WAYS = "write 5m (from now), 18:00, 'tomorrow 8:00' or 2027-01-31T08:00; in job files and REST a time has its zone"


def read_begin(field: str, value: float | str | None, now: float) -> float:
    """The instant, in seconds since 1970; 0 if it has come, or none is given."""
    if value is None or value == NOW:
        return 0.0
    if isinstance(value, str):
        at = _told(field, value, now)
    elif value < _EPOCH_MIN:
        raise Unprocessable(
            f"{field}: {shown(value)} is not an instant in seconds since 1970: {_WAYS}", reason="OutOfRange"
        )
    else:
        at = float(value)
    if not at <= now + SECONDS_MAX:
        raise Unprocessable(
            f"{field}: {shown(value)} is too far: at most {SECONDS_MAX // 86_400} days from now",
            reason="OutOfRange",
        )
    return at if at > now else 0.0


def _told(field: str, text: str, now: float) -> float:
    if (later := _later(text)) is not None:
        return now + read_duration(field, later)
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise BadRequest(f"{field}: {shown(text)} is not a time: {_WAYS}")
    return at.timestamp()


def local_begin(text: str, now: datetime) -> str:
    """What somebody wrote, as an instant with its zone; `now` is what clocks show here, without one.

    The zone of this machine knows when summer time begins and ends. What is not understood stays as it is: the
    coordinator says what is wrong with it.
    """
    text = text.strip()
    try:
        if (later := _later(text)) is not None:
            at = now.astimezone() + timedelta(seconds=parse_seconds(later))
        elif (match := _CLOCK.fullmatch(text)) is not None and text:
            at = _of_clock(match[1] or "", match[2] or "", now).astimezone()
        else:
            at = datetime.fromisoformat(text)
            at = at if at.tzinfo is not None else at.astimezone()
    except (ValueError, OverflowError, OSError):
        return text
    return at.isoformat(timespec="seconds")


def _later(text: str) -> str | None:
    """So long from now: the duration of `+2h`, `now+2h` or `2h`; None for what is no duration."""
    if text.startswith(_LATER):
        return text.partition("+")[2]
    return text if _DURATION.fullmatch(text) else None


def _of_clock(day: str, clock: str, now: datetime) -> datetime:
    """A time of today or tomorrow; without a day, the next one at that time."""
    hour, minute, second = (int(part) for part in f"{clock or '0:00'}:0".split(":")[:3])
    at = datetime.combine(now.date(), time(hour, minute, second))
    is_next = day.lower() == "tomorrow" or (not day and at <= now)
    return at + timedelta(days=1) if is_next else at
