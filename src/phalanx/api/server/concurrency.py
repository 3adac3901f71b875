"""The limit on what is costly: so many at once, the next ones wait a moment, and are then told to come again.

Where a place rests after it was used, what passes takes a bounded share of the coordinator's time.
Users take turns, so that one who submits a thousand at once waits for himself and not the others for him.

A request that waits here costs the memory of its body and no time: nobody has looked into it. So however many submit at
once, cancels, questions and what runners say find a coordinator that has time for them. How many large bodies there may
be at once is counted where they are read.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque

from phalanx.errors import TooMany

LINE_SHARE = 4
REST_S_MIN, REST_S_MAX = 0.01, 1.0
GOLDEN = 0.6180339887  # its multiples are spread evenly, however many there are


class ConcurrencyLimit:
    """Places inside, and a line in front for each user; whoever leaves lets the next user's first one in.

    One user may have three quarters of the places and a quarter of the line, so that the next one finds room.
    """

    def __init__(self, inside: int, line: int, patience_s: float, rest: float = 0.0) -> None:
        """A place rests `rest` times as long as it was held before the next one has it."""
        self._rest = rest
        self._free = inside
        self._inside_max = max(1, inside * 3 // 4)
        self._line_max = line
        self._patience_s = patience_s
        self._inside: Counter[str] = Counter()
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}  # the user whose turn is next stands first
        self._waiting = 0
        self._came = 0

    def passed(self, user: str = "") -> Passed:
        """Within this block a place is ours; TooMany if there was none in time."""
        return Passed(self, user)

    async def enter(self, user: str) -> None:
        if self._free and self._inside[user] < self._inside_max and user not in self._lines:
            self._enter(user)
        else:
            await self._stand_in_line(user)

    def leave(self, user: str, held_since: float) -> None:
        loop = asyncio.get_running_loop()
        rest_s = min(REST_S_MAX, self._rest * (loop.time() - held_since)) if self._rest else 0.0
        if rest_s > REST_S_MIN:
            loop.call_later(rest_s, self._leave, user)
        else:
            self._leave(user)

    async def _stand_in_line(self, user: str) -> None:
        mine = self._lines.setdefault(user, deque())
        if self._waiting >= self._line_max or len(mine) >= max(1, self._line_max // LINE_SHARE):
            self._drop_if_empty(user)
            raise _full()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        mine.append(turn)
        self._waiting += 1
        try:
            async with asyncio.timeout(self._patience()):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():  # the place came at the same moment: it is another's now
                self._leave(user)
            elif turn in mine:
                mine.remove(turn)
                self._waiting -= 1
                self._drop_if_empty(user)
            if isinstance(error, TimeoutError):
                raise _full() from None
            raise

    def _patience(self) -> float:
        """From half to one and a half: a thousand who came at once must not all be sent away, and be back, at once."""
        self._came += 1
        return self._patience_s * (0.5 + self._came * GOLDEN % 1)

    def _enter(self, user: str) -> None:
        self._free -= 1
        self._inside[user] += 1

    def _leave(self, user: str) -> None:
        self._free += 1
        self._inside[user] -= 1
        if not self._inside[user]:
            del self._inside[user]
        if self._lines:
            self._admit()

    def _admit(self) -> None:
        """Give free places to those in line, one user after another."""
        for user in list(self._lines):
            if not self._free:
                return
            if self._inside[user] >= self._inside_max:
                continue
            line = self._lines.pop(user)
            while line:
                turn = line.popleft()
                self._waiting -= 1
                if not turn.done():
                    self._enter(user)
                    turn.set_result(None)
                    break
            if line:
                self._lines[user] = line  # behind the others now

    def _drop_if_empty(self, user: str) -> None:
        if not self._lines.get(user, True):
            del self._lines[user]


class Passed:
    """A place inside, held for one block. Every submit passes here, and an async generator would cost more."""

    __slots__ = ("_began", "_gate", "_user")

    def __init__(self, gate: ConcurrencyLimit, user: str) -> None:
        self._gate = gate
        self._user = user
        self._began = 0.0

    async def __aenter__(self) -> None:
        await self._gate.enter(self._user)
        self._began = asyncio.get_running_loop().time()

    async def __aexit__(self, *_: object) -> None:
        self._gate.leave(self._user, self._began)


def _full() -> TooMany:
    return TooMany(
        "more is submitted than can be taken in just now", reason="TooManySubmits", retry_after_s=1.0
    )
