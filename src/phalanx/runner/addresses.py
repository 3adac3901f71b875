"""The doors a runner may knock at: the link ports of its coordinators, and behind which one the leader is. No I/O.

A standby names the leader, so one answer is enough to find it. A credential is shown at no door that was not given
to us, unless TLS proves that our own authority vouches for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from phalanx.endpoint import Addresses

REFUSED = "refused"  # where others name a leader
HOPELESS_S = (
    10.0  # how long a leader must have refused us until it is believed; longer than an old lease lasts
)
SHUNNED_S = 5.0  # how long a door that kept silent is not believed to be the leader's


class LinkAddresses(Addresses):
    """Where to knock next. The control connection chooses, the log road goes where that was let in."""

    def __init__(self, addresses: Sequence[str], *, vouched: bool = False) -> None:
        """`addresses` as host:port."""
        super().__init__(addresses, vouched=vouched)
        self.at = self.given[0]
        self.leader = self.at  # where we were welcomed last
        self._tried: set[str] = set()  # since the last pause
        self._silent_at: dict[str, float] = {}
        self._said: dict[str, str] = {}  # what was said last at each door: REFUSED, or where the leader is
        self._refused_at: float | None = None  # when we were first refused, since the last welcome
        self._welcomes = 0
        self._welcomed = asyncio.Event()

    def welcomed(self) -> None:
        """The leader is behind this door."""
        self._tried.clear()
        self._silent_at.pop(self.at, None)
        self._said.clear()
        self._refused_at = None
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
        self._said[self.at] = leader
        if leader not in self._tried and self.may_follow(leader) and not self._is_shunned(leader, now):
            self.at = leader
            return True
        self._begin_again()
        return False

    def failed(self, now: float, *, silent: bool) -> bool:
        """Nobody let us in, or we were put out. True if another door is worth trying at once."""
        self._said.pop(self.at, None)
        if silent:
            self._silent_at[self.at] = now
        return self._go_on()

    def refused(self, now: float) -> bool:
        """Whoever is behind this door will never have us. Others may: it may be of another cluster by mistake."""
        self._said[self.at] = REFUSED
        self._refused_at = now if self._refused_at is None else self._refused_at
        return self._go_on()

    def is_hopeless(self, now: float) -> bool:
        """Whether nobody will ever have us: every door refuses us, or one that the others call their leader's."""
        refusing = {address for address, said in self._said.items() if said == REFUSED}
        if self._refused_at is None or not refusing:
            return False
        is_theirs = not refusing.isdisjoint(self._said.values())
        return refusing.issuperset(self.given) or (is_theirs and now - self._refused_at >= HOPELESS_S)

    def _go_on(self) -> bool:
        self._tried.add(self.at)
        fresh = [address for address in self.others(self.at) if address not in self._tried]
        if fresh:
            self.at = fresh[0]
            return True
        self._begin_again()
        return False

    def _is_shunned(self, leader: str, now: float) -> bool:
        return now - self._silent_at.get(leader, -SHUNNED_S) < SHUNNED_S

    def _begin_again(self) -> None:
        self._tried.clear()
        self.at = self.others(self.at)[0]
