"""The exit code of a task as a shell has it: 128+N for signal N, where REST has −N. Lost ones have none."""

from __future__ import annotations

_OF_SIGNALS = frozenset({"signalled", "cancelled", "timeout", "oom", "evicted"})


def shell_code(code: int | None, reason: str) -> int | None:
    """−1 is no signal unless the reason says so: the task was lost, and its code is unknown."""
    if code is None or code >= 0:
        return code
    return None if code == -1 and reason not in _OF_SIGNALS else 128 - code
