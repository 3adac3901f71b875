"""Processes that may be paused and may die: what reaches a dead one is lost, what reaches a paused one waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from phalanx.sim.world import World


class Life:
    """One process, from its start to its death. It never comes back; its successor is another `Life`."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.is_alive = True
        self.is_paused = False
        self._backlog: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()

    def call(self, effect: Callable[..., None], *args: Any) -> None:
        """Call it now, or when the process is resumed, or never if it is dead."""
        if not self.is_alive:
            return
        if self.is_paused:
            self._backlog.append((effect, args))
        else:
            effect(*args)

    def later(self, delay_s: float, effect: Callable[..., None], *args: Any) -> None:
        self.world.after(delay_s, self.call, effect, *args)

    def pause(self) -> None:
        """As SIGSTOP does."""
        self.is_paused = True

    def resume(self) -> None:
        """As SIGCONT does: everything that has waited is delivered at once, in order."""
        self.is_paused = False
        while self._backlog and self.is_alive and not self.is_paused:
            effect, args = self._backlog.popleft()
            effect(*args)

    def end(self) -> None:
        """As SIGKILL does: the memory is gone."""
        self.is_alive = False
        self._backlog.clear()
