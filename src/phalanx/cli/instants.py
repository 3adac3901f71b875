"""A point in time as people write it: how long ago, a time of day, or a date."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta

from phalanx.core.model.amounts import parse_seconds
from phalanx.errors import BadRequest

_CLOCK = re.compile(r"(?:(today|yesterday)[ T]?)?([0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?)?", re.IGNORECASE)
_AGO = re.compile(r"\s+ago$", re.IGNORECASE)


def read_since(text: str, now: float, option: str = "--since") -> float:
    """`2h` or `2h ago`, `yesterday`, `9:00`, or `2026-11-18T09:00` where we are, or with a zone."""
    text = text.strip()
    try:
        if (said := _CLOCK.fullmatch(text)) is not None and text:
            at = _of_clock(
                (said[1] or "").lower(), said[2] or "0:00", datetime.fromtimestamp(now).astimezone()
            ).timestamp()
        elif (day := _date(text)) is not None:
            at = day.astimezone().timestamp()
        else:
            at = now - parse_seconds(_AGO.sub("", text))
    except (ValueError, OverflowError, OSError):
        raise BadRequest(
            f"{option}: {text[:80]!r} is not a time: write 2h, 3d, yesterday, 9:00, 2026-11-18 or 2026-11-18T09:00"
        ) from None
    return max(0.0, at)


def _date(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _of_clock(day: str, clock: str, now: datetime) -> datetime:
    """A time of today or yesterday; without a day, the last one that it was so late."""
    hour, minute, second = (int(part) for part in f"{clock}:0".split(":")[:3])
    at = datetime.combine(now.date(), time(hour, minute, second))
    is_before = day == "yesterday" or (not day and at > now.replace(tzinfo=None))
    return at - timedelta(days=1) if is_before else at
