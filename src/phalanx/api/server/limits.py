"""How much at once: costly requests, streams and other places, strangers' connections, and the pace of long reads.

`ConcurrencyLimit` is for what is costly: so many at once, the next ones wait a moment, and are then told to come again.
A request that waits there costs the memory of its body and no time: nobody has looked into it. So however many submit
at once, cancels, questions and what runners say find a coordinator that has time for them. Users take turns.
`StreamLimit` is for what lasts: so many places in all, a part of them for one user or one address, some kept back.
`Unauthenticated` is for connections that have not shown yet who they are: never a reason to refuse the next one.
`TimeSlices` cuts long reads into pieces, between which everything else that is ready has its turn.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter, deque
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from phalanx.api.schema.documents import BODY_BYTES_MAX
from phalanx.api.server.auth import Identity
from phalanx.clock import Clock
from phalanx.errors import TooMany

LINE_SHARE = 4
REST_S_MIN, REST_S_MAX = 0.01, 1.0
GOLDEN = 0.6180339887  # its multiples are spread evenly, however many there are

USER_SHARE = 4  # one user may have a quarter of the places,
ADDRESS_SHARE = 2  # one address half of them, for several users may be behind it
KEPT_SHARE = 8  # and an eighth comes on top for operators
KEEPERS = ("operator", "admin")
Place = tuple[str, str]  # whose, and where from

C = TypeVar("C", bound=Hashable)

PIECE_S = 0.002
BURST_S = 0.25  # of a rate that goes through at once
RATE_SHARE = 3
PRUNE_EVERY = 256


class ServerLimits(Struct, frozen=True):
    """How much one coordinator takes on at once."""

    body_bytes: int = BODY_BYTES_MAX
    streams: int = 256  # watches and log readers
    sessions: int = 512  # of exec and port-forward
    session_bytes_per_s: float = (
        32 * 1024 * 1024
    )  # of one user's sessions together; of all users three times as much
    session_idle_s: float = 3600.0  # after which one in which nothing happens is ended
    waits: int = 1024  # long polls
    reads: int = 1024  # questions that are being answered
    submits: int = 64  # carried out at once; a turn takes them together
    submits_waiting: int = 4096  # for a place among them,
    submit_within_s: float = 1.0  # and not longer than that
    large_bytes: int = 32 * 1024  # a body above this, or of unknown length, is a large one
    large_submits: int = 2  # of these so many at once, with plans and explanations,
    large_rest: float = 3.0  # each place resting so many times as long as it was used,
    large_within_s: float = 10.0  # and they wait longer for one
    large_bodies: int = 256  # held in memory at once, from their first byte until they are carried out
    beat_s: float = 15.0  # between two signs of life of a quiet stream; its token is checked again then
    settle_s: float = 0.05  # how long a watch may take to refuse before its answer begins
    ready_s: float = 5.0


class ConcurrencyLimit:
    """Places inside, and a line in front for each user; a place that is freed goes to the next user's first request.

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
            await self._wait_in_line(user)

    def leave(self, user: str, held_since: float) -> None:
        loop = asyncio.get_running_loop()
        rest_s = min(REST_S_MAX, self._rest * (loop.time() - held_since)) if self._rest else 0.0
        if rest_s > REST_S_MIN:
            loop.call_later(rest_s, self._leave, user)
        else:
            self._leave(user)

    async def _wait_in_line(self, user: str) -> None:
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
        "too many submits, plans or explanations at once; try again later",
        reason="TooManySubmits",
        retry_after_s=1.0,
    )


class Visitor(Protocol):
    """Who takes a place, and where from."""

    @property
    def user(self) -> str: ...

    @property
    def address(self) -> str: ...

    @property
    def identity(self) -> Identity: ...


class StreamLimit:
    """A number of places of one kind."""

    def __init__(self, most: int, noun: str) -> None:
        self.most = most
        self.noun = noun
        self.used = 0
        self._of_users: Counter[str] = Counter()
        self._of_addresses: Counter[str] = Counter()

    @contextmanager
    def taken(self, visitor: Visitor) -> Iterator[None]:
        """Within this block a place is the visitor's."""
        place = self.take(visitor)
        try:
            yield
        finally:
            self.give(place)

    def take(self, visitor: Visitor) -> Place:
        """A place for this visitor, to be given back; TooMany if there is none."""
        self._check(visitor)
        self.used += 1
        self._of_users[visitor.user] += 1
        self._of_addresses[visitor.address] += 1
        return visitor.user, visitor.address

    def give(self, place: Place) -> None:
        user, address = place
        self.used -= 1
        _less(self._of_users, user)
        _less(self._of_addresses, address)

    def _check(self, visitor: Visitor) -> None:
        is_keeper = visitor.identity.role in KEEPERS
        kept = self.most // KEPT_SHARE if is_keeper else 0
        mine, ours = _share(self.most, USER_SHARE), _share(self.most, ADDRESS_SHARE)
        if self.used >= self.most + kept:
            raise self._no(f"all {self.most} {self.noun} are in use")
        if self._of_users[visitor.user] >= mine + kept:
            raise self._no(
                f"user {visitor.user} has {mine} of the {self.most} {self.noun}, as many as one user may"
            )
        if not is_keeper and not _is_local(visitor.address) and self._of_addresses[visitor.address] >= ours:
            raise self._no(
                f"address {visitor.address} has {ours} of the {self.most} {self.noun}, as many as one address may"
            )

    def _no(self, text: str) -> TooMany:
        return TooMany(f"{text}: end some, or try again", reason="TooManyPlaces", retry_after_s=1)


def _share(most: int, divisor: int) -> int:
    return max(1, most // divisor)


def _less(counts: Counter[str], key: str) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]


def _is_local(address: str) -> bool:
    """All users on the coordinator's own machine share one address, so it does not identify them."""
    try:
        return not address or ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


class ByteRate:
    """How fast bytes of users go through: each user's at `rate`, all together at three times that.

    Copying them costs time of the loop in which everybody is answered (4 ms for a megabyte).
    """

    def __init__(self, rate: float, burst_s: float = BURST_S) -> None:
        self._rates = {True: rate, False: RATE_SHARE * rate}  # of one user, of all
        self._burst_s = burst_s
        self._used_until: dict[str, float] = {}  # by user, and of all under an empty name
        self._look_at = PRUNE_EVERY

    def pause_s(self, user: str, size: int, now: float) -> float:
        """Note that so much has gone through; how long to wait before more."""
        if len(self._used_until) >= self._look_at:
            self._used_until = {who: until for who, until in self._used_until.items() if until > now}
            self._look_at = 2 * len(self._used_until) + PRUNE_EVERY
        until = now
        for who in (user, ""):
            used = max(now, self._used_until.get(who, now)) + size / self._rates[bool(who)]
            self._used_until[who] = used
            until = max(until, used)
        return max(0.0, until - now - self._burst_s)


class Unauthenticated(Generic[C]):
    """By address, the oldest first."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._of: dict[str, dict[C, None]] = {}
        self._addresses: dict[C, str] = {}

    def __len__(self) -> int:
        return len(self._addresses)

    def __contains__(self, connection: object) -> bool:
        return connection in self._addresses

    def __iter__(self) -> Iterator[C]:
        return iter(self._addresses)

    def add(self, address: str, connection: C) -> C | None:
        """Take one in; the one that has to go for it, if any, is no longer counted."""
        self._of.setdefault(address, {})[connection] = None
        self._addresses[connection] = address
        if len(self._addresses) <= self.most:
            return None
        crowd = max(self._of.values(), key=len)
        oldest = next(iter(crowd))
        self.remove(oldest)
        return oldest

    def remove(self, connection: C) -> None:
        """It is known now, or gone. Nothing happens if it was authenticated."""
        address = self._addresses.pop(connection, None)
        if address is None:
            return
        crowd = self._of[address]
        del crowd[connection]
        if not crowd:
            del self._of[address]


class TimeSlices:
    """Hands out pieces of the loop, first come first served."""

    def __init__(self, clock: Clock, piece_s: float = PIECE_S) -> None:
        self._clock = clock
        self._piece_s = piece_s
        self._line: deque[asyncio.Future[None]] = deque()
        self._is_taken = False  # this round's slice is taken

    async def turn(self) -> TimeSlice:
        """Wait for a slice; its holder works until it `is_over` and then asks for the next."""
        loop = asyncio.get_running_loop()
        if self._is_taken:
            mine: asyncio.Future[None] = loop.create_future()
            self._line.append(mine)
            await mine
        else:
            self._is_taken = True
            loop.call_soon(self._next)
        return TimeSlice(self._clock, self._clock.monotonic() + self._piece_s)

    def _next(self) -> None:
        """One round later: the next in line, who is woken by the loop in the round after this one."""
        while self._line:
            first = self._line.popleft()
            if not first.done():
                first.set_result(None)
                asyncio.get_running_loop().call_soon(self._next)
                return
        self._is_taken = False


class TimeSlice:
    """A moment of the loop."""

    __slots__ = ("_clock", "_ends_at")

    def __init__(self, clock: Clock, ends_at: float) -> None:
        self._clock = clock
        self._ends_at = ends_at

    @property
    def is_over(self) -> bool:
        return self._clock.monotonic() >= self._ends_at
