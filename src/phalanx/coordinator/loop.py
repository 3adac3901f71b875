"""The loop of a term: mailbox → decide → append under our epoch → answer and dispatch.

Whatever arrives while a batch is being written goes into the next one. If the store refuses because of a newer
epoch, the term is over. If it cannot write, what was decided in memory is thrown away, the state is read back,
and only heartbeats are served until a write succeeds again. Before anything is said the clock is looked at: one who
was paused may have been replaced. Winning leadership and keeping it is left to `leadership.py`.

The mailbox has two lanes with limits. Reports of runners and what ends work (cancel, drain) go first; submits go
second, and only so many of them enter one turn: a flood of submits makes submits wait, and then be refused, while
everything else is served as before.

From time to time an image of the state is taken between two turns, so that the whole log need not be read, and the log
is pruned. If an image cannot be written the log is longer, nothing else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Protocol

from msgspec import Struct

from phalanx.clock import Clock
from phalanx.coordinator.collector import collector_still
from phalanx.coordinator.link import Envelope, Reply
from phalanx.coordinator.restore import read_back
from phalanx.coordinator.term import Term, confirm_every_s
from phalanx.coordinator.turn import Engine, Turn, leases_only
from phalanx.core.cluster.decision import Answer, Refused
from phalanx.core.cluster.events import LogSettled, encode
from phalanx.core.cluster.image import encode_state
from phalanx.core.cluster.inputs import Disconnect, Heartbeat, Hello, Input, Submit, Tell, Tick
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.transitions import apply
from phalanx.core.model.reason import Reason, Tier
from phalanx.errors import PhalanxError, TooMany, Unavailable
from phalanx.logger import logger, told
from phalanx.store.protocol import Batch, Fenced, Loaded, LogHole, Regressed, Store, StoreError

log = logger("coordinator")
IMAGE_EVERY = 100_000  # events between two images
IMAGE_AT_START = 5_000  # more than that, and the next start should not have to read them again
IMAGE_RETRY_PART = 10  # an image that could not be written is tried again after a tenth of that
TICK_S = 0.25
NOT_TAKEN = Refused(Reason("NotActive", Tier.HELD, "this coordinator is not the active one"), "stale")
RUNNERS_MAX = 200_000  # envelopes; a connection that comes on top is closed, and tells again
REQUESTS_MAX = 5_000
SUBMITS_MAX = 2_000
FIRST_PER_TURN = 20_000  # inputs
SUBMITS_PER_TURN = 100
ROUNDS_BEFORE = (
    1  # of asyncio, before a turn: what others send at the same moment is in it, and is written with it
)
ROUNDS_BETWEEN = 8  # of asyncio, after a turn that was cut short: what came meanwhile is in the next one
_OF_RUNNERS = (Heartbeat, Tell, Hello, Disconnect)


class Retention(Struct, frozen=True):
    """How much of the past is kept, and how many events may come between two images."""

    events: int = 1_000_000
    jobs: int = 1_000_000
    every: int = IMAGE_EVERY


class Images:
    """The images of one term."""

    def __init__(self, keep: Retention, clock: Clock, newest: int) -> None:
        self._keep = keep
        self._clock = clock
        self._newest = newest  # the revision of the last image
        self._every = min(IMAGE_AT_START, keep.every)  # for the first image of a term
        self._writing: asyncio.Task[None] | None = None

    async def look(self, store: Store, state: ClusterState, term: Term) -> None:
        """Take an image if enough has happened since the last one."""
        if state.revision - self._newest < self._every or self._is_writing():
            return
        if not await self._renewed(store, term):
            return
        self._newest, self._every = state.revision, self._keep.every
        with collector_still():
            body = encode_state(state)
        self._writing = asyncio.create_task(self._write(store, term.epoch, state.revision, body))
        await asyncio.sleep(0)  # a store that does not wait writes at once

    async def close(self) -> None:
        """Give up an image that is being written."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)

    def _is_writing(self) -> bool:
        return self._writing is not None and not self._writing.done()

    async def _renewed(self, store: Store, term: Term) -> bool:
        """Encoding may take long, and the lease is not renewed meanwhile. If even that fails, an image would too."""
        sent_at = self._clock.monotonic()
        try:
            await store.renew(term.epoch, term.lease_s)
        except Fenced:
            raise
        except StoreError:
            return False
        term.renewed(sent_at)
        return True

    async def _write(self, store: Store, epoch: int, revision: int, body: bytes) -> None:
        try:
            await store.save_image(epoch, revision, body)
            await store.prune(epoch, max(0, revision - self._keep.events), self._keep.jobs)
        except Fenced:
            return  # the next append says so
        except StoreError as error:
            log.warning("cannot write an image, the log keeps growing", error=str(error))
            self._newest = revision - self._keep.every + self._keep.every // IMAGE_RETRY_PART


class Hearers(Protocol):
    """Receives what is durable."""

    def turned(self, turn: Turn) -> None:
        """A turn is durable: carry out its effects."""
        ...

    def reread(self, loaded: Loaded, state: ClusterState) -> None:
        """The state was read back from the store; the log may hold events that were not published yet."""
        ...


class Loop:
    """The turns of one term."""

    def __init__(
        self, store: Store, engine: Engine, term: Term, clock: Clock, hearers: Hearers, images: Images
    ) -> None:
        self.engine = engine
        engine.timer = clock.monotonic
        self.term = term
        self.mailbox = Mailbox()
        self.trouble: StoreError | None = None  # why nothing can be written just now
        self._store = store
        self._clock = clock
        self._hearers = hearers
        self._images = images
        self._wake = asyncio.Event()
        self._is_stale = False  # what is in memory was not kept, and could not be read back yet
        self._kept = 0  # where the log ended when it was read back
        self._in_hand: list[Envelope] = []  # taken out of the mailbox and not yet answered
        self._has_more = False  # the last turn was cut short
        self._is_turning = False  # what is in memory may not be in the store yet
        self._ticked_at = 0.0
        self._confirmed_at = term.sent_at  # when the store last knew no newer epoch than ours
        self._confirm_every_s = confirm_every_s(engine.state.rules)

    @property
    def state(self) -> ClusterState:
        return self.engine.state

    def post(self, envelope: Envelope) -> bool:
        """Put inputs into the mailbox; the reply is called when they are durable. False if it is full or closed."""
        self._wake.set()
        return self.mailbox.post(envelope)

    async def ask(self, inputs: list[Input]) -> list[Answer | None]:
        """Post inputs and wait for their durable answers; NOT_TAKEN for each if the term ended before it read them."""
        if self.trouble is not None:
            raise unavailable(self.trouble)
        answered: asyncio.Future[list[Answer | None]] = asyncio.get_running_loop().create_future()

        def reply(answers: list[Answer | None]) -> None:
            if not answered.done():
                answered.set_result(answers)

        if not self.post((inputs, reply)):
            raise _full(self.mailbox)
        answers = await answered
        if inputs and not answers:
            raise unavailable(self.trouble)
        return answers

    async def written(self) -> None:
        """Wait until what was decided is in the store."""
        if self._is_turning:
            await self.ask([])

    async def run(self) -> None:
        """Turn until the term is over (Fenced, LogHole, Regressed), or the mailbox is closed and empty."""
        try:
            while self.mailbox or not self.mailbox.is_closed:
                await self._wait()
                self._in_hand, self._is_turning = self.mailbox.take(), True
                try:
                    if await self._can_turn():
                        await self._turn()
                except (Fenced, LogHole, Regressed):
                    raise
                except StoreError as error:
                    self._throw_away(error)
        finally:
            self._leave()

    def finish(self) -> None:
        """Take nothing in any more, and end when what is in has been answered."""
        self.mailbox.close()
        self._wake.set()

    async def close(self) -> None:
        """Leave nothing behind that still writes."""
        await self._images.close()

    async def _wait(self) -> None:
        """Wait for envelopes, or until something is due."""
        self._is_turning = False
        if not self.mailbox:
            # While nothing can be written nobody is woken, and what is due would have us try without a pause.
            due = self.state.next_due if self.trouble is None else None
            wait_s = TICK_S if due is None else min(TICK_S, max(0.0, due - self._clock.now()))
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
        for _ in range(ROUNDS_BETWEEN if self._has_more else ROUNDS_BEFORE):
            await asyncio.sleep(0)
        self._wake.clear()

    async def _turn(self) -> None:
        now, sent_at = self._clock.now(), self._clock.monotonic()
        inputs = [given for inputs, _ in self._in_hand for given in inputs]
        if now - self._ticked_at >= TICK_S:
            self._ticked_at = now
            inputs.append(Tick())
        turn = self.engine.turn(inputs, now)
        for failed in turn.failures:
            log.error(
                "planning this job failed, other jobs are not affected", job=failed.job, exc_info=failed
            )
        for wrong in turn.unwritable:
            log.error("refused, for the log cannot hold it", input=wrong)
        batch = turn.batch()
        if batch is not None:
            appending_at = self._clock.monotonic()
            await self._store.append(self.term.epoch, batch, turn.history)
            turn.append_s = self._clock.monotonic() - appending_at
            self._confirmed_at = sent_at
        elif sent_at - max(self._confirmed_at, self.term.sent_at) >= self._confirm_every_s:
            await self._store.confirm(self.term.epoch)
            self._confirmed_at = sent_at
        await self._hold()
        self._has_more = turn.more
        if turn.more or self.mailbox:
            self._wake.set()
        self._answer(turn)
        self._hearers.turned(turn)
        await self._images.look(self._store, self.state, self.term)

    async def _hold(self) -> None:
        """Nothing is sent while the lease may be over: it is renewed first, which shows whether we were replaced."""
        while not self.term.holds(self._clock.monotonic()):
            sent_at = self._clock.monotonic()
            await self._store.renew(self.term.epoch, self.term.lease_s)
            self.term.renewed(sent_at)

    def _answer(self, turn: Turn) -> None:
        at = 0
        envelopes, self._in_hand = self._in_hand, []
        for inputs, reply in envelopes:
            reply(turn.answers[at : at + len(inputs)])
            at += len(inputs)

    def _say_nothing(self) -> None:
        """The callers of these envelopes learn that the outcome is unknown."""
        envelopes, self._in_hand = self._in_hand, []
        for _, reply in envelopes:
            _told(reply, [])

    def _leave(self) -> None:
        """The term is over: what was in hand may have been kept or not, what was never taken surely was not."""
        self._say_nothing()
        self.mailbox.close()
        while envelopes := self.mailbox.take():
            for inputs, reply in envelopes:
                _told(reply, [NOT_TAKEN for _ in inputs])

    def _throw_away(self, error: StoreError) -> None:
        """Nothing of the turn may have been kept, so nothing of it may be said: forget it, and read the truth back."""
        if self.trouble is None or str(self.trouble) != str(error):
            log.error("cannot write to the store; nothing accepted is lost", **told(error))
        self.trouble = error
        self._is_stale = True
        self._say_nothing()

    async def _can_turn(self) -> bool:
        """While nothing can be written: keep leases alive, refuse the rest, and see whether it works again."""
        if self.trouble is None:
            return True
        if self._is_stale:
            loaded = await self._store.load()
            with collector_still():
                state = read_back(self.state, loaded, self._clock.now())
            self.engine = Engine(state, self.engine.policy)
            self.engine.timer = self._clock.monotonic
            self._is_stale = False
            self._kept = state.revision
            self._hearers.reread(loaded, state)
        settled = LogSettled(at=self._clock.now(), cause="the store", after=self._kept)
        apply(self.state, settled)  # never the same number twice: a failed try may have been kept after all
        try:
            await self._store.append(self.term.epoch, Batch(self.state.revision, encode([settled])), [])
        except Fenced:
            raise
        except StoreError as error:
            await self._serve_leases(error)
            return False
        self.trouble = None
        log.info("the store accepts writes again")
        return True

    async def _serve_leases(self, error: StoreError) -> None:
        """Heartbeats need no write, but they need to know that we were not replaced."""
        self.trouble = error
        await self._store.confirm(self.term.epoch)
        envelopes, self._in_hand = self._in_hand, []
        for inputs, reply in envelopes:
            reply(leases_only(self.state, inputs, self._clock.now()))


def _told(reply: Reply, answers: list[Answer | None]) -> None:
    """An answer that cannot be delivered must not keep the others from being delivered."""
    try:
        reply(answers)
    except PhalanxError as error:
        log.warning("cannot deliver an answer", error=str(error))


def unavailable(trouble: StoreError | None) -> Unavailable:
    """A request whose fate is not known, or that cannot be written just now."""
    detail = (
        f"the coordinator cannot write: {trouble}"
        if trouble
        else "the coordinator stopped before it answered"
    )
    hint = f"{trouble.hint}; nothing accepted was lost".removeprefix("; ") if trouble else ""
    return Unavailable(detail, reason="StoreUnavailable", hint=hint, retry_after_s=2.0)


def _full(mailbox: Mailbox) -> TooMany | Unavailable:
    if mailbox.is_closed:
        return Unavailable(
            "the coordinator is stopping", reason="Stopping", hint="ask again", retry_after_s=1.0
        )
    return TooMany("the coordinator's mailbox is full", reason="MailboxFull", retry_after_s=1.0)


class Mailbox:
    """Letters that wait for a turn, oldest first in each lane."""

    def __init__(self) -> None:
        self._first: deque[Envelope] = deque()
        self._second: deque[Envelope] = deque()
        self.is_closed = False

    def __len__(self) -> int:
        return len(self._first) + len(self._second)

    def post(self, envelope: Envelope) -> bool:
        """Put an envelope in; False if there is no room for its kind, or the mailbox is closed."""
        inputs = envelope[0]
        lane = self._second if any(type(each) is Submit for each in inputs) else self._first
        if self.is_closed or len(lane) >= _limit(inputs, lane is self._second):
            return False
        lane.append(envelope)
        return True

    def take(self) -> list[Envelope]:
        """The envelopes of the next turn. None is divided, so one large one may exceed the limit alone."""
        return [*_take(self._first, FIRST_PER_TURN), *_take(self._second, SUBMITS_PER_TURN)]

    def close(self) -> None:
        """Take nothing in any more; what is in may still be taken out."""
        self.is_closed = True


def _limit(inputs: list[Input], is_second: bool) -> int:
    if is_second:
        return SUBMITS_MAX
    return RUNNERS_MAX if inputs and isinstance(inputs[0], _OF_RUNNERS) else REQUESTS_MAX


def _take(lane: deque[Envelope], most: int) -> list[Envelope]:
    taken: list[Envelope] = []
    count = 0
    while lane and (not taken or count + len(lane[0][0]) <= most):
        taken.append(lane.popleft())
        count += len(taken[-1][0])
    return taken
