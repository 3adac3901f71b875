"""Attached attempts: how far the readers of their logs are, and when an attempt has to wait for them. No side effects.

A client shows what such an attempt writes. Nothing is cut from its logs that this reader has not had, so it is stopped
while much is unread, and goes on when that was read or when nobody reads it any more.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .attempt import KeptAttempt

UNREAD_SHARE, READ_SHARE = 2, 4  # stopped when half a log's limit is unread, until it is a quarter
FIRST_READ_S = 60.0  # for the first reader to come


class LogReader:
    """The reader of one log: it has what is before `at`, and is there until then; None: nobody reads it."""

    __slots__ = ("at", "until")

    def __init__(self) -> None:
        self.at = 0
        self.until: float | None = None

    def come(self, at: int | None, until: float) -> None:
        """It is there, and has come so far; None: as far as it was."""
        self.at = self.at if at is None else int(at)
        self.until = until


def is_unread(attempt: KeptAttempt, now: float) -> tuple[bool, float]:
    """Whether it has to wait for a reader, and until when at most. A reader that is gone is waited for no longer."""
    most = attempt.log_max_bytes // (READ_SHARE if attempt.unread else UNREAD_SHARE)
    last = float("inf")
    unread = False
    for reader, size in zip(attempt.readers or (), attempt.sizes, strict=False):
        if reader.until is None:
            continue
        if now >= reader.until:
            reader.until = None  # its log is kept within its limit as any other
        elif size - reader.at > most:
            unread, last = True, min(last, reader.until)
    return unread, last
