"""Finding the coordinator that leads among several addresses, and going on after a cut. No I/O; both clients use it.

A standby names the leader, a dead one says nothing, a frozen one keeps silent: each of them sends a call on to the
next address. A call is repeated only if that does no harm, or if it was surely not executed. A token is shown to no
place that was not given to us, unless TLS proves that our own authority vouches for it, and never in the clear to
another machine. A stream that was cut is taken up where it stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from phalanx.api.schema.queries import Follow, Stream
from phalanx.client import calls
from phalanx.client.calls import SUBMIT, TIMEOUT_S, Call
from phalanx.endpoint import Addresses
from phalanx.errors import (
    LOG_AWAY,
    BadRequest,
    NotFound,
    PhalanxError,
    Unauthorized,
    Unavailable,
    Unconfirmed,
)
from phalanx.settings_types import is_loopback

PATIENCE_S = 30.0
PAUSE_FIRST_S, PAUSE_MAX_S = 0.05, 1.0
CONNECT_S = 5.0
CONNECT_ONE_OF_MANY_S = 2.0
TRY_S = 5.0  # for an answer of one of several addresses, at first; each round over all of them allows more
SILENCE_S = 20.0  # of a watch at one of several, which shows a sign of life every 15 s
LOG_SILENCE_S = (
    10.0  # of a log that is followed: silence may mean that its leader is frozen, so it is asked for anew
)
LEADER_ONLY = ("Phalanx-Read", "leader")

# Reasons that prove that a call was not executed.
NOT_DONE = frozenset({"Unreachable", "Untrusted", "NotActive", "NotReady", "NotHttp", "Unauthorized"})
UNANSWERED = frozenset({"Dropped", "TimedOut"})
SILENT = UNANSWERED | {"Unreachable", "NotHttp"}
PASSING = NOT_DONE | {"Dropped", "TimedOut", "Stopping", "StoreUnavailable"}

PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 5.0, 5.0, 10.0, 10.0, 10.0, 10.0)

SEARCH_WORTH = 4  # pauses that a search for a leader in vain has taken already
CUT = frozenset({"Dropped", "Stopping", "TimedOut"})


def addresses_of(given: str | Sequence[str]) -> tuple[str, ...]:
    """One address, several, or several in one text with commas."""
    parts = given.split(",") if isinstance(given, str) else given
    found = tuple(dict.fromkeys(part.strip().removesuffix("/") for part in parts))
    for address in found:
        scheme, _, place = address.partition("://")
        if scheme not in ("http", "https", "grpc", "grpcs") or not place:
            raise BadRequest(f"address {address!r} is not one: write http://HOST:PORT")
        if scheme.startswith("grpc") and not urlsplit(address).port:
            raise BadRequest(
                f"address {address!r} has no port: write {scheme}://HOST:PORT, as --grpc-port says"
            )
    if not found:
        raise BadRequest("no address was given: write http://HOST:PORT")
    if len({address.startswith("grpc") for address in found}) > 1:
        raise BadRequest(f"addresses {', '.join(found)}: expected all of them over HTTP, or all over gRPC")
    return found


def safe_addresses(given: str | Sequence[str]) -> tuple[str, ...]:
    """The same, where a token may be shown: over https, or over plain http on this machine."""
    found = addresses_of(given)
    for address in found:
        scheme = address.partition("://")[0]
        if scheme in ("http", "grpc") and not is_loopback(urlsplit(address).hostname or ""):
            raise BadRequest(
                f"address {address!r} would send the token unencrypted: expected {scheme}s, or a loopback"
                " address",
                reason="PlainHttp",
                hint=f"use {scheme}s://HOST:PORT and --ca-file, or a tunnel:"
                f" `ssh -L 7433:127.0.0.1:7433 HOST` and {scheme}://127.0.0.1:7433",
            )
    return found


class KnownLeader(Addresses):
    """Where the leader was last seen. All calls of one client share it."""

    def __init__(self, addresses: Sequence[str], *, vouched: bool = False) -> None:
        super().__init__(addresses, vouched=vouched)
        self.leader = self.given[0]

    def may_follow(self, address: str) -> bool:
        """Whether a token may be shown there: never in the clear to a place that was not given."""
        return super().may_follow(address) and (address in self.given or address.startswith("https://"))

    def lost(self, address: str) -> None:
        """The leader there is silent: try another address first."""
        if self.leader == address:
            self.leader = self.others(address)[0]


class LeaderSearch:
    """One call's way to the leader: the address to try now, and after each failure whether and when to retry."""

    def __init__(self, known_leader: KnownLeader, call: Call[Any], patience_s: float = PATIENCE_S) -> None:
        self._known_leader = known_leader
        self._call = call
        self._patience_s = min(patience_s, call.timeout_s or patience_s)
        self._until: float | None = None  # counted from the first failure: a long poll may take its time
        self.address = known_leader.leader
        self._untried = [each for each in known_leader.others(self.address) if each != self.address]
        self._round = 0
        self._pause_s = PAUSE_FIRST_S
        self._dropped = False
        self._is_unanswered = False  # it was sent somewhere, and what became of it was not heard
        self._said: dict[str, PhalanxError] = {}
        self._tried: set[str] = set()  # in this round

    @property
    def connect_s(self) -> float:
        return CONNECT_S if self._known_leader.is_alone else CONNECT_ONE_OF_MANY_S

    @property
    def answer_s(self) -> float | None:
        """How long this address may take to answer; with each round over all of them a little longer."""
        whole, try_s = self._call.timeout_s, TRY_S * float(2**self._round)
        if self._known_leader.is_alone or not self._may_repeat:
            return whole
        if self._call.streams:
            return min(SILENCE_S, try_s)
        return None if whole is None else min(whole, whole - TIMEOUT_S + try_s)

    @property
    def silence_s(self) -> float | None:
        """How long a stream may be silent. A cut one is taken up again, so it costs little to ask anew."""
        if self._known_leader.is_alone:
            return self._call.timeout_s
        return LOG_SILENCE_S if self._call.timeout_s is None else SILENCE_S

    @property
    def headers(self) -> dict[str, str]:
        """A standby may lag behind, so it is asked only when nobody leads, and only what it can answer."""
        if self._known_leader.is_alone or self._reads_anywhere:
            return {}
        return dict([LEADER_ONLY])

    @property
    def _reads_anywhere(self) -> bool:
        return self._call.anywhere and self._round > 0

    def found(self) -> None:
        """This address answered as a leader does."""
        if not self._reads_anywhere:
            self._known_leader.leader = self.address

    def doubts(self, error: PhalanxError) -> bool:
        """Whether an answer is to be taken for a failure of this address rather than for the call's own."""
        if error.reason == "NotActive":
            return True
        if self._known_leader.is_alone:
            return False
        if isinstance(error, NotFound):
            return self._reads_anywhere  # a standby that lags behind has not heard of it yet
        if isinstance(error, Unauthorized):
            return bool(self._untried)  # nor of a token that was created a moment ago
        return error.reason in PASSING and self._may_repeat

    def failed(self, error: PhalanxError, now: float) -> float:
        """How long to pause before trying `address`, which may have changed. Gives up by raising."""
        self._said[self.address] = error
        self._tried.add(self.address)
        self._is_unanswered |= error.reason in UNANSWERED
        if error.reason in SILENT:
            self._known_leader.lost(self.address)
        if self._is_final(error):
            raise self._told(error)
        self._until = now + self._patience_s if self._until is None else self._until
        if now >= self._until:
            raise self._told(self._verdict(error))
        self._follow(error.extra.get("leader"))
        if self._untried:
            self.address = self._untried.pop(0)
            return 0.0
        if all(each.reason == "Untrusted" for each in self._said.values()):
            raise self._untrusted(error)
        return min(self._next_round(), self._until - now)

    def _told(self, error: PhalanxError) -> PhalanxError:
        """A change that was sent and not answered may have been accepted: the caller must know before repeating it."""
        return unconfirmed(self._call, error) if self._is_unanswered and self._call.changes else error

    @property
    def _may_repeat(self) -> bool:
        return self._call.repeatable or self._call.streams

    def _is_final(self, error: PhalanxError) -> bool:
        if self._known_leader.is_alone and error.reason != "NotActive":
            once_more = error.reason == "Dropped" and self._call.repeatable and not self._dropped
            self._dropped = True
            return not once_more
        return error.reason not in NOT_DONE and not self._may_repeat

    def _follow(self, leader: object) -> None:
        """Go where a standby points, unless we have just been there."""
        if not isinstance(leader, str) or not self._known_leader.may_follow(leader):
            return
        if leader in self._untried:
            self._untried.remove(leader)
        elif leader in self._tried:
            return
        self._untried.insert(0, leader)

    def _next_round(self) -> float:
        """Begin again with the addresses that answer: the next leader is among them."""
        silent = {at for at, error in self._said.items() if error.reason in SILENT}
        order = sorted(self._known_leader.given, key=lambda each: each in silent)
        self.address, self._untried = order[0], order[1:]
        self._tried.clear()
        self._round += 1
        if self._dropped and self._known_leader.is_alone:
            return 0.0
        pause_s, self._pause_s = self._pause_s, min(PAUSE_MAX_S, 2 * self._pause_s)
        return pause_s

    def _untrusted(self, last: PhalanxError) -> PhalanxError:
        """Certificates do not change while we wait, so this is raised at once."""
        return Unavailable(
            f"no coordinator can be trusted: {self._all_said()}", reason="Untrusted", hint=last.hint
        )

    def _all_said(self) -> str:
        return "; ".join(f"{address}: {_words(address, error)}" for address, error in self._said.items())

    def _verdict(self, last: PhalanxError) -> PhalanxError:
        if self._known_leader.is_alone:
            return last
        return Unavailable(
            f"no coordinator leads: {self._all_said()}",
            reason="NoLeader",
            hint="are the coordinators running, and can they reach their store? phalanx coordinator starts one",
        )


def _words(address: str, error: PhalanxError) -> str:
    """What an address said, without naming it twice."""
    return error.detail.removeprefix(f"cannot reach {address}: ").removeprefix(f"cannot trust {address}: ")


def unconfirmed(call: Call[Any], error: PhalanxError) -> Unconfirmed:
    """The error of a change that was sent, and that may or may not have been accepted."""
    if call.request_id:
        what = f"request {call.request_id}"
        flag = f"--request-id {call.request_id}, " if call.path == SUBMIT else ""
        hint = (
            "`phalanx ps --all` shows whether it is there; given again under this request id"
            f" ({flag}in Python request_id=...) it is not done twice"
        )
    else:
        what = f"{call.method} {call.path}"
        hint = (
            "repeating it does no harm"
            if call.repeatable
            else "look whether it was done before you repeat it"
        )
    extra = error.extra | ({"request_id": call.request_id} if call.request_id else {})
    detail = f"{error.detail}; it is not known whether {what} was accepted"
    return Unconfirmed(detail, reason=error.reason, hint=hint, extra=extra)


class RetryDelays:
    """How long to wait before each next try. What arrives makes it fresh; when it is used up, we give up."""

    def __init__(self, *, begun: bool = False) -> None:
        """`begun`: what is asked for is known to be there, so the first question is worth repeating as well."""
        self._left: Iterator[float] = iter(PAUSES_S if begun else ())
        self._met = False

    def renew(self) -> None:
        self._left = iter(PAUSES_S)

    def meet(self, error: Unavailable) -> None:
        """An answer that was cut proves that there is a server, which is worth waiting for."""
        if error.reason in CUT and not self._met:
            self._met = True
            self.renew()

    def next(self, error: PhalanxError) -> float | None:
        """Seconds to wait, or None to give up. Before the first success there is nothing to go on with."""
        if error.reason in (LOG_AWAY, "LogNotServed"):
            return None
        for _ in range(SEARCH_WORTH if error.reason == "NoLeader" else 0):
            next(self._left, None)
        return next(self._left, None)


class LogPosition:
    """Where a reader of a log stands, so that it can ask for exactly what is missing."""

    def __init__(
        self,
        id: str,
        stream: Stream,
        attempt: int | None,
        offset: int | None,
        lines: int | None,
        *,
        follow: Follow,
    ) -> None:
        self._id = id
        self._stream = stream
        self._attempt = attempt
        self._offset = offset
        self._lines = lines
        self._follow = follow
        self._size = 0
        self._moved = False  # since the last question
        self.gap = 0  # bytes that are missing before this answer

    def call(self) -> Call[None]:
        return calls.logs(
            self._id, self._stream, self._attempt, self._offset, self._lines, follow=self._follow
        )

    @property
    def offset(self) -> int:
        return self._offset or 0

    @property
    def attempt(self) -> int:
        """The attempt that is read; 0: there was none yet."""
        return self._attempt or 0

    def begin(self, headers: Mapping[str, str]) -> None:
        """Note what the answer says of itself: from now on the place is exact."""
        self._offset, self._lines = int(headers.get("x-phalanx-offset", 0)), None
        self._size = int(headers.get("x-phalanx-size", 0))
        attempt = int(headers.get("x-phalanx-attempt", 0))
        self._attempt = attempt or self._attempt
        self.gap = int(headers.get("x-phalanx-gap", 0))
        self._moved = self.gap > 0

    def advance(self, piece: bytes) -> None:
        self._offset = (self._offset or 0) + len(piece)
        self._moved = self._moved or bool(piece)

    def is_at_end(self) -> bool:
        """An answer has ended: whether that was all. It also ends before what was not kept, so we ask again.

        A follower is at the end when it asked again and nothing came.
        """
        return not self._moved or (not self._follow and (self._offset or 0) >= self._size)
