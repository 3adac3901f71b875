"""Regular expressions of users, refused unless the coordinator can match them in a short, bounded time.

RE2 does the matching (`core/model/patterns.py`): it never goes back over what it tried, and so it has no
backreferences, look-ahead or possessive repeats. What one job may give in total is limited here as well.
"""

from __future__ import annotations

from phalanx.api.schema.fields import check_text, shown
from phalanx.errors import BadRequest

PATTERN_BYTES_MAX = 500
PATTERNS_MAX = 100  # of a job, in all its rules
SYNTAX = "RE2 reads it: no backreferences, look-ahead, look-behind, \\Z or possessive repeats"


class PatternBudget:
    """What all patterns of one job may amount to together."""

    def __init__(self) -> None:
        self._count = 0
        self._size = 0

    def take(self, field: str, pattern: str) -> None:
        """Refuse a pattern that cannot be compiled, or that is too much with those before it."""
        from phalanx.core.model.patterns import (
            PROGRAM_MAX,
            Unreadable,
            program_size,
        )  # a command needs no RE2

        check_text(field, pattern, PATTERN_BYTES_MAX)
        try:
            size = program_size(pattern)
        except Unreadable as error:
            raise BadRequest(
                f"{field}: {shown(pattern)} is not a regular expression: {error} ({SYNTAX})"
            ) from None
        self._count += 1
        self._size += size
        if self._count > PATTERNS_MAX:
            raise BadRequest(
                f"{field}: {shown(pattern)} is one too many, give at most {PATTERNS_MAX} patterns in all rules of a job"
            )
        if self._size > PROGRAM_MAX:
            raise BadRequest(
                f"{field}: {shown(pattern)} brings the patterns of this job to {self._size} instructions, "
                f"give at most {PROGRAM_MAX}: fewer or shorter patterns, and smaller counts than in 'a{{100}}'"
            )
