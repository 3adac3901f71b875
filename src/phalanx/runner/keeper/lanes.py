"""Lanes: attempts that run one after another, because they were given the same place.

The runner sends what comes next ahead of time; the keeper starts it the moment its predecessor and the whole
tree of it are gone. So a node does not idle while the runner is told, and goes on when the runner is dead. A
member of a gang takes its lane without running, and stands ready until it is told to go. Neither those that wait
nor those that are ready are written down: a runner whose keeper died sends them again.
"""

from __future__ import annotations

from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .attempt import Options

    Waiting = tuple[str, str, Options]  # key, brief, options of a start request


class Lanes:
    """Who holds each lane, and who waits for it."""

    def __init__(self) -> None:
        self.waiting: dict[str, Waiting] = {}  # by key, in the order they came
        self.ready: dict[str, Waiting] = {}  # who holds a lane, or needs none, and has not been told to go
        self._holders: dict[int, str] = {}
        self._queues: dict[int, deque[str]] = {}

    def is_taken(self, lane: int | None) -> bool:
        return lane in self._holders

    def take(self, lane: int | None, key: str) -> None:
        if lane is not None:
            self._holders[lane] = key

    def wait(self, lane: int, request: Waiting) -> None:
        self.waiting[request[0]] = request
        self._queues.setdefault(lane, deque()).append(request[0])

    def goes_on(self, lane: int | None) -> bool:
        """Whether somebody waits for this lane."""
        return lane in self._queues

    def leave(self, lane: int | None, key: str) -> Waiting | None:
        """The holder is gone: who comes next."""
        if lane is None or self._holders.get(lane) != key:
            return None
        del self._holders[lane]
        return self.next(lane)

    def next(self, lane: int) -> Waiting | None:
        queue = self._queues.get(lane)
        if queue is None:
            return None
        request = self.waiting.pop(queue.popleft())
        if not queue:
            del self._queues[lane]
        return request

    def withdraw(self, key: str) -> bool:
        """Whether it was waiting; it does so no more."""
        request = self.waiting.pop(key, None)
        if request is None:
            return False
        lane = request[2]["lane"]
        self._queues[lane].remove(key)
        if not self._queues[lane]:
            del self._queues[lane]
        return True
