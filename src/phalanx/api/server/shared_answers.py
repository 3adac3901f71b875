"""Answers that several open pages may share: made once, given to all who may see the same, and soon made anew.

A page that asks with `Phalanx-Read: shared` accepts an answer that was made a moment ago for another page. How long an
answer is given follows from how long it took to make, so that no question, however many ask it, takes more than a
small part of the loop. Whether somebody may ask at all is decided before, for each request; what may be seen of an
answer is a part of the key (`Route.sees`), so that nobody is given what was made for others.

The revision in an answer's head is that of the state when it was begun: a page that knows of a later change asks
again. An entity tag saves sending what a page has already.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from hashlib import blake2b

from phalanx.api.server.messages import Header, Response
from phalanx.clock import Clock

KEEP_S_MIN, KEEP_S_MAX = 0.25, 3.0
SHARE = 50.0  # an answer is given for so many times as long as it took to make
ANSWERS_MAX = 256
BYTES_MAX = 32 << 20
REVISION = b"phalanx-revision"
_NO_STORE: Header = (b"cache-control", b"no-store")
Make = Callable[[], Awaitable[Response]]


class SharedAnswer:
    """One answer, or the work on it."""

    __slots__ = ("good_until", "made", "size")

    def __init__(self) -> None:
        self.made: asyncio.Task[Response] | None = None
        self.good_until = float("inf")  # as long as it is being made
        self.size = 0


class SharedAnswers:
    """The answers of the last moment, by what was asked and what may be seen of it."""

    def __init__(self, clock: Clock, revision: Callable[[], int]) -> None:
        self._clock = clock
        self._revision = revision
        self._answers: OrderedDict[Hashable, SharedAnswer] = OrderedDict()
        self._bytes = 0

    async def answer(self, key: Hashable, etag: bytes, make: Make) -> Response:
        """The answer to a question, made now unless one is at hand; 304 if the page has it, by its entity tag."""
        known = self._answers.get(key)
        if known is None or known.made is None or self._clock.monotonic() >= known.good_until:
            self._make_room()
            known = self._answers[key] = SharedAnswer()
            known.made = asyncio.create_task(self._made(key, known, make))
        reply = await asyncio.shield(known.made)
        if etag and (b"etag", etag) in reply.headers:
            told = tuple(each for each in reply.headers if each[0] in (b"etag", REVISION))
            return Response(304, (_NO_STORE, *told), b"")
        return Response(reply.status, reply.headers, reply.body)  # a copy, since headers may be added to it

    async def _made(self, key: Hashable, answer: SharedAnswer, make: Make) -> Response:
        """Make an answer, and note for how long it is good. An error goes to all who wait, and is not kept."""
        began = self._clock.monotonic()
        try:
            revision = self._revision()
            reply = await make()
        except BaseException:
            self._forget(key, answer)
            raise
        tag = blake2b(reply.body, digest_size=12).hexdigest().encode()
        reply.headers += ((b"etag", b'"%b"' % tag),)
        if not any(name == REVISION for name, _ in reply.headers):  # one made from what is older says so
            reply.headers += ((REVISION, b"%d" % revision),)
        now = self._clock.monotonic()
        answer.good_until = now + min(KEEP_S_MAX, max(KEEP_S_MIN, SHARE * (now - began)))
        if self._answers.get(key) is answer:
            answer.size = len(reply.body)
            self._bytes += answer.size
        return reply

    def _forget(self, key: Hashable, answer: SharedAnswer) -> None:
        if self._answers.get(key) is answer:
            del self._answers[key]
            self._bytes -= answer.size

    def _make_room(self) -> None:
        """Forget what is old, and the oldest of the rest if there is too much."""
        now = self._clock.monotonic()
        for key, answer in list(self._answers.items()):
            if now >= answer.good_until or len(self._answers) >= ANSWERS_MAX or self._bytes > BYTES_MAX:
                self._forget(key, answer)
