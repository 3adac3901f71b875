"""The breath of a coordinator: mailbox → decide → append under our epoch → answer and dispatch.

Whatever arrives while a batch is being written goes into the next one. If the store refuses because of a newer
epoch, the term is over. If it cannot write, what was decided in memory is thrown away, the state is read back,
and only heartbeats are served until a write succeeds again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from phalanx.clock import Clock
from phalanx.coordinator.heart import Heart, Turn, confirm_every_s, leases_only, recalled, restore
from phalanx.coordinator.links import Letter
from phalanx.core.cluster.apply import apply
from phalanx.core.cluster.decision import Answer
from phalanx.core.cluster.events import TermOpened, encode
from phalanx.core.cluster.image import encode_state
from phalanx.core.cluster.inputs import Input, Tick
from phalanx.core.cluster.state import ClusterState, Rules
from phalanx.core.cluster.view import next_due
from phalanx.core.model.plan import Policy
from phalanx.diary import diary
from phalanx.errors import TooMany, Unavailable
from phalanx.store.protocol import Batch, Fenced, Store, StoreError

log = diary("coordinator")
LETTERS_MAX = 20_000
IMAGE_EVERY = 100_000  # events between two images
IMAGE_AT_START = 5_000
_TICK_S = 0.25


class Loop:
    """One term of one coordinator."""

    def __init__(self, store: Store, rules: Rules, policy: Policy, clock: Clock) -> None:
        self._store = store
        self._rules = rules
        self._policy = policy
        self._clock = clock
        self._letters: list[Letter] = []
        self._wake = asyncio.Event()
        self._listeners: list[Callable[[Turn], None]] = []
        self._imaged = 0
        self._ticked_at = 0.0
        self._confirmed_at = 0.0  # when the store last knew no newer epoch than ours
        self._confirm_every_s = confirm_every_s(rules)
        self.heart = Heart(ClusterState(rules), policy)
        self.trouble: StoreError | None = None  # why nothing can be written just now

    @property
    def state(self) -> ClusterState:
        return self.heart.state

    def listen(self, listener: Callable[[Turn], None]) -> None:
        """Call `listener` with every turn once it is durable."""
        self._listeners.append(listener)

    def post(self, letter: Letter) -> None:
        """Put inputs into the mailbox; the reply is called when they are durable."""
        self._letters.append(letter)
        self._wake.set()

    async def ask(self, inputs: list[Input]) -> list[Answer | None]:
        """Post inputs and wait for their durable answers."""
        if self.trouble is not None:
            raise _unavailable(self.trouble)
        if len(self._letters) >= LETTERS_MAX:
            raise TooMany("the coordinator's mailbox is full", reason="MailboxFull", retry_after_s=1.0)
        answered: asyncio.Future[list[Answer | None]] = asyncio.get_running_loop().create_future()

        def reply(answers: list[Answer | None]) -> None:
            if not answered.done():
                answered.set_result(answers)

        self.post((inputs, reply))
        answers = await answered
        if inputs and not answers:
            raise _unavailable(self.trouble)
        return answers

    async def open(self) -> None:
        """Begin a term: mint the epoch, read the state back, and write that down."""
        epoch = await self._store.open_term()
        loaded = await self._store.load()
        self.heart = Heart(restore(loaded, self._rules), self._policy)
        opened = TermOpened(at=self._clock.now(), cause="start", epoch=epoch)
        apply(self.state, opened)
        await self._store.append(epoch, Batch(self.state.revision, encode([opened])), [])
        self._imaged = loaded.image_revision
        if (
            self.state.revision - self._imaged >= IMAGE_AT_START
        ):  # so that the next start need not read all this
            await self._save_image()
        log.info("term opened", epoch=epoch, revision=self.state.revision, jobs=len(self.state.jobs))
        if loaded.quarantined or self.state.skipped:
            log.error("damaged records set aside", records=loaded.quarantined, skipped=self.state.skipped)

    async def run(self) -> None:
        """Turn until the term is over (Fenced is raised) or the task is cancelled."""
        while True:
            await self._rest()
            letters, self._letters = self._letters, []
            if self.trouble is not None and not await self._recovered(letters):
                continue
            try:
                await self._turn(letters)
            except Fenced:
                raise
            except StoreError as error:
                await self._throw_away(letters, error)

    async def _rest(self) -> None:
        """Wait for letters, or until something is due."""
        if not self._letters:
            due = next_due(self.state)
            wait_s = _TICK_S if due is None else min(_TICK_S, max(0.0, due - self._clock.now()))
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                pass
        self._wake.clear()

    async def _turn(self, letters: list[Letter]) -> None:
        now = self._clock.now()
        inputs = [given for inputs, _ in letters for given in inputs]
        if now - self._ticked_at >= _TICK_S:
            self._ticked_at = now
            inputs.append(Tick())
        turn = self.heart.turn(inputs, now)
        batch = turn.batch()
        if batch is not None:
            await self._store.append(self.state.epoch, batch, turn.history)
            self._confirmed_at = now
        elif now - self._confirmed_at >= self._confirm_every_s:
            await self._store.confirm(self.state.epoch)
            self._confirmed_at = now
        if turn.more:
            self._wake.set()
        self._answer(letters, turn)
        for listener in self._listeners:
            listener(turn)
        letters.clear()  # they are answered: what fails from here on is none of theirs
        if self.state.revision - self._imaged >= IMAGE_EVERY:
            await self._save_image()

    def _answer(self, letters: list[Letter], turn: Turn) -> None:
        at = 0
        for inputs, reply in letters:
            reply(turn.answers[at : at + len(inputs)])
            at += len(inputs)

    async def _save_image(self) -> None:
        self._imaged = self.state.revision
        await self._store.save_image(self.state.epoch, self._imaged, encode_state(self.state))

    async def _throw_away(self, letters: list[Letter], error: StoreError) -> None:
        """Nothing of the turn was kept, so nothing of it may be said: forget it and read the truth back."""
        log.error("cannot write, nothing accepted is lost", error=str(error))
        self.trouble = error
        loaded = await self._store.load()
        self.heart = Heart(recalled(self.state, loaded, self._clock.now()), self._policy)
        for _, reply in letters:
            reply([])

    async def _recovered(self, letters: list[Letter]) -> bool:
        """While nothing can be written: keep leases alive, refuse the rest, and see whether it works again."""
        self.state.revision += 1  # never the same number twice: a failed try may have been kept after all
        try:
            await self._store.append(self.state.epoch, Batch(self.state.revision, encode([])), [])
        except Fenced:
            raise
        except StoreError as error:
            self.trouble = error
            is_ours = await self._is_ours()
            for inputs, reply in letters:
                reply(leases_only(self.state, inputs, self._clock.now()) if is_ours else [])
            return False
        self.trouble = None
        log.info("writing works again")
        return True

    async def _is_ours(self) -> bool:
        """Whether the office is still ours. If that cannot be known, no lease may be renewed."""
        try:
            await self._store.confirm(self.state.epoch)
        except Fenced:
            raise
        except StoreError:
            return False
        return True


def _unavailable(trouble: StoreError | None) -> Unavailable:
    detail = f"the coordinator cannot write: {trouble}" if trouble else "the coordinator is stopping"
    hint = "free some space or make the state folder writable; nothing accepted was lost"
    return Unavailable(detail, reason="StoreUnavailable", hint=hint, retry_after_s=2.0)
