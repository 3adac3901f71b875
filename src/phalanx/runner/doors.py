"""The doors a runner may knock at: the link ports of its coordinators, and behind which one the leader is. No I/O.

A standby names the leader, so one answer is enough to find it. A credential is shown at no door that was not given
to us, unless TLS proves that our own authority vouches for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

SHUNNED_S = 5.0  # how long a door that kept silent is not believed to be the leader's


class Doors:
    """Where to knock next. The control connection chooses, the log road goes where that was let in."""

    def __init__(self, doors: Sequence[str], *, vouched: bool = False) -> None:
        """`doors` as host:port. With `vouched`, TLS lets in only those whom our own authority knows."""
        self.given = tuple(dict.fromkeys(doors))
        self.at = self.given[0]
        self.leader = self.at  # where we were welcomed last
        self._vouched = vouched
        self._tried: set[str] = set()  # since the last pause
        self._silent_at: dict[str, float] = {}
        self._welcomes = 0
        self._welcomed = asyncio.Event()

    @property
    def is_alone(self) -> bool:
        return len(self.given) == 1

    def welcomed(self) -> None:
        """The leader is behind this door."""
        self._tried.clear()
        self._silent_at.pop(self.at, None)
        self.leader = self.at
        self._welcomes += 1
        self._welcomed.set()
        self._welcomed = asyncio.Event()

    async def welcome(self, after: int) -> int:
        """Wait for a welcome after the one with this number; its number."""
        while self._welcomes <= after:
            await self._welcomed.wait()
        return self._welcomes

    def standby(self, leader: str, now: float) -> bool:
        """Nobody leads here, but perhaps at `leader`. True if it is worth knocking there at once."""
        self._tried.add(self.at)
        if leader not in self._tried and self._may_follow(leader, now):
            self.at = leader
            return True
        self._begin_again()
        return False

    def failed(self, now: float, *, silent: bool) -> bool:
        """Nobody let us in, or we were put out. True if another door is worth trying at once."""
        self._tried.add(self.at)
        if silent:
            self._silent_at[self.at] = now
        fresh = [door for door in self._others() if door not in self._tried]
        if fresh:
            self.at = fresh[0]
            return True
        self._begin_again()
        return False

    def _may_follow(self, leader: str, now: float) -> bool:
        shunned = now - self._silent_at.get(leader, -SHUNNED_S) < SHUNNED_S
        return bool(leader) and not shunned and (leader in self.given or self._vouched)

    def _begin_again(self) -> None:
        self._tried.clear()
        self.at = self._others()[0]

    def _others(self) -> list[str]:
        """The doors given to us, those behind the present one first, itself last."""
        if self.at not in self.given:
            return list(self.given)
        after = self.given.index(self.at) + 1
        return [*self.given[after:], *self.given[:after]]
