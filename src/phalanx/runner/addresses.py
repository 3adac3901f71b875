"""The addresses a runner may connect to: the link ports of its coordinators, and which one leads. No I/O.

A standby names the leader, so one answer is enough to find it. A credential is sent to no address that was not given
to us, unless TLS proves that our own CA vouches for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from phalanx.endpoint import Addresses

REFUSED = "refused"  # the answer of an address that refused us
HOPELESS_S = (
    10.0  # how long a leader must have refused us until it is believed; longer than an old lease lasts
)
AVOIDED_S = 5.0  # how long an address that did not answer is not taken for the leader's


class LinkAddresses(Addresses):
    """Which address to try next. The control connection chooses; the log connection follows it."""

    def __init__(self, addresses: Sequence[str], *, vouched: bool = False) -> None:
        """`addresses` as host:port."""
        super().__init__(addresses, vouched=vouched)
        self.at = self.given[0]
        self.leader = self.at  # where we were welcomed last
        self._tried: set[str] = set()  # since the last pause
        self._silent_at: dict[str, float] = {}
        self._answers: dict[str, str] = {}  # the last answer of each address: REFUSED, or where the leader is
        self._refused_at: float | None = None  # when we were first refused, since the last welcome
        self._welcomes = 0
        self._welcomed = asyncio.Event()

    def welcomed(self) -> None:
        """The leader is at this address."""
        self._tried.clear()
        self._silent_at.pop(self.at, None)
        self._answers.clear()
        self._refused_at = None
        self.leader = self.at
        self._welcomes += 1
        self._welcomed.set()
        self._welcomed = asyncio.Event()

    async def welcome(self, after: int) -> int:
        """Wait for a welcome after the one with this number; returns its number."""
        while self._welcomes <= after:
            await self._welcomed.wait()
        return self._welcomes

    def standby(self, leader: str, now: float) -> bool:
        """This one does not lead, but perhaps `leader` does. True if it is worth connecting there at once."""
        self._tried.add(self.at)
        self._answers[self.at] = leader
        if leader not in self._tried and self.may_follow(leader) and not self._is_avoided(leader, now):
            self.at = leader
            return True
        self._begin_again()
        return False

    def failed(self, now: float, *, silent: bool) -> bool:
        """The connection failed or was lost. True if another address is worth trying at once."""
        self._answers.pop(self.at, None)
        if silent:
            self._silent_at[self.at] = now
        return self._go_on()

    def refused(self, now: float) -> bool:
        """This address will never accept us. Others may: it may be of another cluster by mistake."""
        self._answers[self.at] = REFUSED
        self._refused_at = now if self._refused_at is None else self._refused_at
        return self._go_on()

    def is_hopeless(self, now: float) -> bool:
        """Whether no address will ever accept us: each refuses us, or the one that the others name as leader does."""
        refusing = {address for address, answer in self._answers.items() if answer == REFUSED}
        if self._refused_at is None or not refusing:
            return False
        is_theirs = not refusing.isdisjoint(self._answers.values())
        return refusing.issuperset(self.given) or (is_theirs and now - self._refused_at >= HOPELESS_S)

    def _go_on(self) -> bool:
        self._tried.add(self.at)
        fresh = [address for address in self.others(self.at) if address not in self._tried]
        if fresh:
            self.at = fresh[0]
            return True
        self._begin_again()
        return False

    def _is_avoided(self, leader: str, now: float) -> bool:
        return now - self._silent_at.get(leader, -AVOIDED_S) < AVOIDED_S

    def _begin_again(self) -> None:
        self._tried.clear()
        self.at = self.others(self.at)[0]
