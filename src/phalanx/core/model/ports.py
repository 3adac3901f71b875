"""Which ports tasks are told to meet at: one range for gangs, one for tasks that stand alone, none of them ephemeral.

Nothing is bound to find one. A gang's port follows from the place of its rank 0, so that all members are told the
same; who is alone on a node is given a port by its runner. Both differ from those of all others alive on that node.
"""

from __future__ import annotations

import zlib

from phalanx.core.model.orders import AttemptKey

GANG_PORTS = range(20_000, 25_000)
LONE_PORTS = range(25_000, 30_000)


def gang_port(node: str, lane: int) -> int:
    """The port of a gang whose rank 0 holds this lane. Lanes of a node are numbered on and on, so it is a fresh one."""
    return GANG_PORTS[(_mark(node) + lane) % len(GANG_PORTS)]


class LonePorts:
    """The ports of those who stand alone on one node, one after another so that none is given again at once."""

    def __init__(self, life: str) -> None:
        """`life` names the runner's life: one that starts anew does not know which ports its former life gave."""
        self._next = _mark(life) % len(LONE_PORTS)
        self._of: dict[AttemptKey, int] = {}
        self._taken: set[int] = set()

    def take(self, key: AttemptKey) -> int:
        """A port that no other attempt has, unless all are taken; the same if it is asked again."""
        if key in self._of:
            return self._of[key]
        is_full = len(self._taken) == len(LONE_PORTS)
        while not is_full and LONE_PORTS[self._next] in self._taken:
            self._step()
        port = self._of[key] = LONE_PORTS[self._next]
        self._taken.add(port)
        self._step()
        return port

    def give_back(self, key: AttemptKey) -> None:
        if (port := self._of.pop(key, None)) is not None:
            self._taken.discard(port)

    def _step(self) -> None:
        self._next = (self._next + 1) % len(LONE_PORTS)


def _mark(text: str) -> int:
    return zlib.crc32(text.encode())
