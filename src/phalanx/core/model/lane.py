"""Lanes: one grant on a node, used by attempts one after another.

A lane is opened by a placement and holds its grant until its last attempt has ended. Short tasks of one job
may be queued behind each other in a lane, so that the node need not wait for the coordinator between them;
since they run one at a time, nothing is ever given out twice.
"""

from __future__ import annotations

from phalanx.core.model.orders import AttemptKey
from phalanx.core.model.resources import Grant


class Lane:
    """Attempts in the order in which they run; the first is the one that holds the grant now."""

    __slots__ = ("attempts", "grant", "id", "is_slow", "node")

    def __init__(self, id: int, node: str, grant: Grant) -> None:
        self.id = id
        self.node = node
        self.grant = grant
        self.attempts: dict[AttemptKey, None] = {}  # a dict keeps order and finds quickly
        self.is_slow = (
            False  # its runner gave back what was queued, or it has to be left: nothing more is queued
        )

    def __len__(self) -> int:
        return len(self.attempts)
