"""A point in time as people write it: how long ago, or a date."""

from __future__ import annotations

from datetime import datetime

from phalanx.core.model.amounts import parse_seconds
from phalanx.errors import BadRequest


def read_since(text: str, now: float, option: str = "--since") -> float:
    """`2h` and `3d` ago, or `2026-11-18T09:00` where we are, or with a zone."""
    try:
        return max(0.0, now - parse_seconds(text))
    except ValueError:
        pass
    try:
        return max(0.0, datetime.fromisoformat(text).astimezone().timestamp())
    except (ValueError, OverflowError, OSError):
        raise BadRequest(
            f"{option}: {text[:80]!r} is not a time: write 2h, 3d, 2026-11-18 or 2026-11-18T09:00"
        ) from None
