"""What each user may hold of the memory for calls of executors, and for their results. No I/O.

A user holds a quarter of it at most. When all of it is taken, those below an equal part still get theirs, so that a few
users together keep no other from working; the memory in use is then at most twice the limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

BYTES_MAX = 256 << 20  # of the calls of all users, and as much of their results
USER_BYTES_MAX = BYTES_MAX // 4
MIB = 1 << 20


def held_by_user(sizes: Iterable[tuple[str, int]]) -> dict[str, int]:
    """The bytes of each user, of those of their queues."""
    held: dict[str, int] = {}
    for user, size in sizes:
        held[user] = held.get(user, 0) + size
    return held


def why_no_more(held: Mapping[str, int], user: str) -> str:
    """The limit that keeps a user from more, as a sentence; empty: there is room."""
    mine, total = held.get(user, 0), sum(held.values())
    if mine >= USER_BYTES_MAX:
        return (
            f"user {user} has {mine / MIB:.1f} MiB of unfinished calls at the coordinator; the limit for one user is"
            f" {USER_BYTES_MAX / MIB:g} MiB"
        )
    part = BYTES_MAX / len({*held, user})
    if total >= BYTES_MAX and mine >= part:
        return (
            f"all users have {total / MIB:.1f} MiB of unfinished calls at the coordinator, and the limit is"
            f" {BYTES_MAX / MIB:g} MiB; user {user} has {mine / MIB:.1f} MiB, an equal part is {part / MIB:.1f} MiB"
        )
    return ""
