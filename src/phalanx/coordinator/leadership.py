"""One coordinator among several: it follows the log as a standby, takes part in elections, and serves when it wins.

    Standby → Active     it was elected, read the rest of the log and wrote that its term is open
    Active  → Standby    another has a newer epoch, or the lease is over and the leadership cannot be confirmed
    Standby → Standby    the log has a hole: it takes part in no election, and serves nothing until it is repaired
    any     → Stopped    it was told to stop; an active one resigns first

What a standby knows is read from the log and may be a moment old; changes are for the active one. A coordinator
that stops being active says so first, then discards its state, and then reads the log again.
"""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import NoReturn

from msgspec import Struct

from phalanx.api.schema.cluster import CoordinatorView
from phalanx.clock import Clock
from phalanx.coordinator.damage import damaged, named
from phalanx.coordinator.link import Envelope, no_reply
from phalanx.coordinator.listener import ClusterCheck, Listener
from phalanx.coordinator.loop import NOT_TAKEN, Images, Loop, Retention, unavailable
from phalanx.coordinator.outage import Outage, in_words, standing_by, why_over
from phalanx.coordinator.replica import Replica
from phalanx.coordinator.term import Term
from phalanx.coordinator.turn import Engine, Turn
from phalanx.core.cluster.decision import Answer
from phalanx.core.cluster.events import TermOpened, encode
from phalanx.core.cluster.inputs import Input
from phalanx.core.cluster.state import ClusterState, Timers
from phalanx.core.cluster.transitions import apply
from phalanx.core.model.plan import Policy
from phalanx.logger import logger
from phalanx.store.copy import MIGRATED
from phalanx.store.protocol import (
    Batch,
    Candidate,
    Fenced,
    Leader,
    LogHole,
    Moved,
    Pruned,
    Regressed,
    Store,
    StoreError,
)

log = logger("coordinator")
LOOK_EVERY_S = 0.25  # how often a standby reads the log, and looks for a vacant leadership
FAR_BEHIND_S = 5.0
PAUSE_S = 0.5  # after the store did not answer
HOLE_PAUSE_S = 5.0  # before the whole log is read again, to see whether it was repaired


class Role(Enum):
    STANDBY = "Standby"
    ACTIVE = "Active"
    STOPPED = "Stopped"


class LeadershipConfig(Struct, frozen=True):
    """The settings by which a coordinator serves."""

    rules: Timers = Timers()
    lease_s: float = 6.0
    policy: Policy = Policy()
    keep: Retention = Retention()


class Leadership:
    """A coordinator process, from its start to its end."""

    def __init__(
        self,
        store: Store,
        candidate: Candidate,
        config: LeadershipConfig,
        clock: Clock,
        listener: Listener,
        cluster_check: ClusterCheck | None = None,
    ) -> None:
        self.role = Role.STANDBY
        self.candidate = candidate
        self.leader: Leader | None = None  # the leader, as far as we know
        self.loop: Loop | None = None
        self._store = store
        self._lease_s = config.lease_s
        self._clock = clock
        self._listener = listener
        self._keep = config.keep
        self._replica = Replica(config.rules, config.policy)
        self._check = cluster_check
        self._outage = Outage(clock)
        self._stopping = asyncio.Event()
        # A leadership in our name may be of our previous process, or of an answer that was lost.
        self._may_be_ours = True
        self._last_epoch = 0  # of the last term that we had

    # Reads and changes, as REST's commands need them.

    @property
    def engine(self) -> Engine:
        if self.loop is not None:
            return self.loop.engine
        if self._replica.engine is None:
            raise self._outage.not_ready("has not read the log yet")
        return self._replica.engine

    @property
    def state(self) -> ClusterState:
        return self.engine.state

    async def ask(self, inputs: list[Input]) -> list[Answer | None]:
        """Have inputs decided, and wait until that is durable."""
        if self.role is not Role.ACTIVE or self.loop is None:
            self.refuse()
        answers = await self.loop.ask(inputs)
        if answers and answers[0] is NOT_TAKEN:
            self.refuse()
        return answers

    def post(self, envelope: Envelope) -> bool:
        """Put a runner's message into the mailbox; False if it will not be read."""
        return self.loop is not None and self.loop.post(envelope)

    def require_active(self) -> None:
        """Raise NotActive unless this coordinator accepts changes."""
        if self.role is not Role.ACTIVE:
            self.refuse()

    def refuse(self) -> NoReturn:
        """Raise NotActive, which names the leader."""
        if isinstance(trouble := self._outage.error, LogHole):
            raise damaged(trouble)
        other = self.leader.candidate if self.leader is not None else None
        raise standing_by(None if other == self.candidate else other, trouble)

    def require_lease(self) -> None:
        """Raise NotActive unless this one is active, surely so by its clock."""
        loop = self.loop if self.role is Role.ACTIVE else None
        if loop is None or not loop.term.holds(self._clock.monotonic()):
            self.refuse()

    async def require_leader(self) -> None:
        """Raise NotActive unless no other leads: by our clock or, if our lease may be over, by the store's word."""
        self.require_active()
        loop = self.loop
        if loop is not None and not loop.term.holds(self._clock.monotonic()):
            try:
                await self._store.confirm(loop.term.epoch)
            except StoreError:
                self.refuse()

    async def ready(self) -> None:
        """Raise Unavailable unless the whole way works: mailbox and store, or for a standby the reading of the log."""
        if self.role is Role.ACTIVE and (loop := self.loop) is not None:
            await loop.ask([])
            try:
                await self._store.confirm(loop.term.epoch)
            except StoreError as error:
                raise unavailable(error) from error
        elif self.role is Role.STOPPED or self._outage.is_hole or self.behind_s() > FAR_BEHIND_S:
            raise self._outage.not_ready("does not read the log")

    def view(self) -> CoordinatorView:
        """This coordinator among the others, as far as it knows."""
        other = self.leader.candidate if self.leader is not None else None
        view = CoordinatorView(self.candidate.name, self.role.value)
        if other is not None:
            view.leader, view.address = other.name, other.address
        now = self._clock.monotonic()
        if self.role is Role.ACTIVE and self.loop is not None and not self.loop.term.holds(now):
            view.behind_s = round(min(now - self.loop.term.until, 1e9), 3)
            view.trouble = "its lease is over and not yet renewed: another may lead"
        if self.role is not Role.ACTIVE:
            view.behind_s = round(min(self.behind_s(), 1e9), 3)
            view.trouble = str(self._outage.error or "")
        return view

    def behind_s(self) -> float:
        """How old what we know may be: the time since the log was last read to its end. The active one knows all."""
        return 0.0 if self.role is Role.ACTIVE else self._clock.monotonic() - self._replica.read_at

    async def catch_up(self) -> bool:
        """A standby reads the log to its end, the active one waits for its store. False if nothing can be new."""
        if self.role is Role.ACTIVE and self.loop is not None:
            await self.loop.written()
            return True  # it may have been written since the question began
        if self.role is not Role.STANDBY or self._replica.engine is None:
            return False
        try:
            await self._follow()
        except StoreError as error:
            raise unavailable(error) from error
        return True

    async def open(self) -> None:
        """Become active at once if the leadership is vacant or our own, else a standby that has read the log."""
        self._listener.closed()
        if not await self._won():
            await self._follow()

    async def run(self) -> None:
        """Follow, take part in elections and serve, again and again, until stopped."""
        while not self._stopping.is_set():
            try:
                if self.loop is not None:
                    await self._serve(self.loop)
                elif not await self._won():
                    await self._follow()
                    self._outage.end()
                    await self._pause(LOOK_EVERY_S)
            except StoreError as error:
                self._outage.meet(error)
                await self._pause(HOLE_PAUSE_S if isinstance(error, LogHole) else PAUSE_S)
        if self.loop is not None:  # told to stop at the moment of winning
            self.loop.finish()
            await self._serve(self.loop)
        self.role = Role.STOPPED

    def stop(self) -> None:
        """End as soon as what was accepted is answered."""
        self._stopping.set()
        if self.loop is not None:
            self.loop.finish()

    async def _won(self) -> bool:
        """Take the leadership if it is vacant or ours, and open the term."""
        known, self.leader = self.leader, await self._store.leader()
        if self.leader is not None and not self._is_ours(self.leader):
            if self.leader != known:
                self._met(self.leader.candidate)
            return False
        if self._replica.engine is None:
            await self._read()  # a log with a hole is found before anything is written
        if self._check is not None:
            self._check.check()
        self._may_be_ours = True  # until the answer is here
        sent_at = self._clock.monotonic()
        self.leader = await self._store.elect(self.candidate, self._lease_s)
        self._may_be_ours = False
        if self.leader.candidate != self.candidate:
            self._met(self.leader.candidate)
            return False
        self._last_epoch = self.leader.epoch
        await self._promote(Term(self.leader.epoch, self._lease_s, sent_at))
        return True

    def _is_ours(self, leader: Leader) -> bool:
        """Whether we may take this leadership again: a late renewal can prolong a term that we have given up."""
        return leader.candidate == self.candidate and (self._may_be_ours or leader.epoch == self._last_epoch)

    def _met(self, other: Candidate) -> None:
        """Another is active. One with our name at another address is no former life of ours, and is not replaced."""
        self._listener.closed()
        if other.name.startswith(MIGRATED):
            log.error("this store was migrated, start its coordinators with --store", to=other.name)
        if other.name == self.candidate.name and other != self.candidate:
            where = f"{other.address}, {other.link}"
            log.warning("another coordinator has this name, give one another --name", active_at=where)

    async def _promote(self, term: Term) -> None:
        """No other coordinator can write any more: read the rest, write that the term is open, and only then answer."""
        try:
            if self._replica.engine is None:
                await self._read()
            else:
                await self._follow()
            try:
                await self._open_term(term)
            except Moved:  # what we followed is not what the store had us follow: read all of it
                await self._read()
                await self._open_term(term)
        except BaseException:
            self._replica.forget()
            await self._resign(term.epoch)
            raise

    async def _open_term(self, term: Term) -> None:
        engine = self._replica.engine
        assert engine is not None
        state = engine.state
        opened = TermOpened(
            at=self._clock.now(), cause=f"coordinator {self.candidate.name}", epoch=term.epoch
        )
        effects = apply(state, opened)
        batch = Batch(state.revision, encode([opened]))
        try:
            await self._store.append(term.epoch, batch, [])
        except StoreError:
            self._replica.forget()
            raise
        images = Images(self._keep, self._clock, self._replica.image_revision)
        self.loop = Loop(self._store, engine, term, self._clock, self._listener, images)
        if self._check is not None and (inputs := self._check.inputs()):
            self.loop.post((inputs, no_reply))
        self._replica.forget()
        self._listener.followed(batch, Turn([opened], effects, [], [], state.revision))
        self.role = Role.ACTIVE
        self._outage.end()
        self._listener.opened()
        log.info("term opened", epoch=term.epoch, revision=state.revision, jobs=len(state.jobs))

    async def _serve(self, loop: Loop) -> None:
        """Take turns and renew the lease, until one of them fails or we are stopped."""
        turning = asyncio.ensure_future(loop.run())
        keeping = asyncio.ensure_future(self._hold(loop.term))
        try:
            await asyncio.wait({turning, keeping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._demote()
            for task in (turning, keeping):
                task.cancel()
            ends = await asyncio.gather(turning, keeping, return_exceptions=True)
            await loop.close()
        failed = [each for each in ends if isinstance(each, Exception) and not isinstance(each, Fenced)]
        if failed:
            await self._resign(loop.term.epoch)
            raise failed[0]
        if self._stopping.is_set():
            await self._resign(loop.term.epoch)
            return
        log.warning("no longer active", epoch=loop.term.epoch, why=why_over(ends))
        await self._read()

    def _demote(self) -> None:
        """Silence first, then forget: what is in memory may never have been kept."""
        self.role = Role.STANDBY
        self.loop = None
        self._listener.closed()

    async def _hold(self, term: Term) -> None:
        """Renew the lease again and again. Ends with Fenced when the leadership is another's, or may be."""
        while True:
            await asyncio.sleep(max(0.0, term.renew_at() - self._clock.monotonic()))
            sent_at = self._clock.monotonic()
            term.tries(sent_at)
            try:
                async with asyncio.timeout(term.lease_s / 3):
                    await self._store.renew(term.epoch, term.lease_s)
                term.renewed(sent_at)
            except Fenced:
                raise
            except (StoreError, TimeoutError) as error:
                log.warning("cannot renew the leader lease", epoch=term.epoch, error=in_words(error))
                if not term.holds(self._clock.monotonic()):
                    await self._confirm(term)

    async def _confirm(self, term: Term) -> None:
        """The lease is over. As long as the store says that there is no successor, runners may keep their leases."""
        try:
            async with asyncio.timeout(term.lease_s / 3):
                await self._store.confirm(term.epoch)
        except Fenced:
            raise
        except (StoreError, TimeoutError) as error:
            raise Fenced(term.epoch, term.epoch) from error

    async def _resign(self, epoch: int) -> None:
        try:
            async with asyncio.timeout(self._lease_s / 2):
                await self._store.resign(epoch)
        except (StoreError, TimeoutError) as error:
            log.warning("cannot resign, a standby takes over when the lease ends", error=in_words(error))

    # Following.

    async def _read(self) -> None:
        loaded = await self._store.load()
        if loaded.quarantined:
            log.error(
                "damaged images are set aside, `phalanx store check` names them", count=loaded.quarantined
            )
        try:
            state = self._replica.begin(loaded, self._clock.monotonic())
        except LogHole as hole:
            self._replica.forget()
            raise await named(hole, self._store) from None
        self._listener.reread(loaded, state)

    async def _follow(self) -> None:
        """Read the log from where we are to its end."""
        if self._replica.engine is None:
            await self._read()
            return
        try:
            async for batch, turn in self._replica.follow(self._store, self._clock):
                self._listener.followed(batch, turn)
        except (Pruned, LogHole, Regressed):  # an image may have it, or the store is another
            await self._read()

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass
