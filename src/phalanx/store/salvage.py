"""What can still be read of a state whose log has a hole, and which jobs are concerned.

The log is replayed as far as it goes, over its holes. The store's index may name the jobs of a batch that cannot be
read; where it names none, every job that had not ended by then may be concerned. A job with a later event that does
not fit is concerned as well. Nothing is written here: `repair.py` does that.
"""

from __future__ import annotations

from msgspec import MsgspecError, Struct

from phalanx.core.cluster.apply.grants import hold_back
from phalanx.core.cluster.apply.jobs import never_again
from phalanx.core.cluster.events import Event, JobForgotten, LogRepaired
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState, Timers
from phalanx.core.cluster.transitions import apply, apply_batch
from phalanx.core.model.job import is_job_id
from phalanx.store.chain import events_of, missing_before
from phalanx.store.protocol import Batch, Loaded, Store, StoreError

# What `apply` may raise when records before an event are missing.
IMPOSSIBLE = (
    MsgspecError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    AssertionError,
    RuntimeError,
)


class Hole(Struct, frozen=True):
    """The log above `after`, up to `upto`, cannot be read. `is_named`: the index has its subjects."""

    after: int
    upto: int
    is_named: bool


class Salvage:
    """The state as far as it can be read, and what is known about the missing part."""

    def __init__(self, loaded: Loaded) -> None:
        rules = Timers()
        self.state = ClusterState(rules) if loaded.image is None else decode_state(loaded.image, rules)
        self.head = loaded.batches[-1].revision if loaded.batches else loaded.image_revision
        self.holes: list[Hole] = []
        self.damaged: list[int] = []  # batches that are there and cannot be read
        self.before: bytes | None = None  # an image of the state before the first hole
        self._concerned: dict[str, None] = {}
        self._named: dict[str, None] = {}

    @classmethod
    async def read(cls, store: Store) -> Salvage:
        """Read everything that is left in the store."""
        loaded = await store.load()
        salvage = cls(loaded)
        for batch in loaded.batches:
            await salvage._take(store, batch)
        await salvage._believe_history(store)
        return salvage

    @property
    def concerned(self) -> list[JobState]:
        """The jobs that have not ended as far as is known, but with something missing: they may have ended."""
        jobs = (self.state.jobs.get(id) for id in self._concerned)
        return [job for job in jobs if job is not None and not job.is_over]

    @property
    def gone(self) -> list[str]:
        """Jobs that the index names and of which nothing can be read any more."""
        return [id for id in self._named if id not in self.state.jobs]

    @property
    def numbers_given(self) -> int:
        """No number above this was ever given: every event that is missing may be that of a job."""
        return self.state.arrivals + sum(hole.upto - hole.after for hole in self.holes)

    def held(self, because: str) -> ClusterState:
        """The state to continue with: what can be read, with every job held that may miss something."""
        for job in self.concerned:
            hold_back(self.state, job, because)
        return self.state

    def back(self) -> ClusterState:
        """The state before the first hole."""
        assert self.before is not None, "a log without a hole has nothing to go back to"
        return decode_state(self.before, Timers())

    async def _take(self, store: Store, batch: Batch) -> None:
        events = events_of(batch)
        missing = missing_before(self.state.revision, batch, events)
        if events is None:
            self.damaged.append(batch.revision)
        if missing is not None:
            await self._pass_over(store, missing)
        elif events and type(events[0]) is LogRepaired:  # and the image that belonged to it is missing
            await self._pass_over(store, batch.revision)
        for event in events or ():
            self._apply(event)
        apply_batch(self.state, (), max(self.state.revision, batch.revision))

    async def _pass_over(self, store: Store, upto: int) -> None:
        state, after = self.state, self.state.revision
        if self.before is None:
            self.before = encode_state(state)
        try:
            names = await store.concerned(after, upto)
        except StoreError:  # the index is damaged as well
            names = []
        self.holes.append(Hole(after, upto, bool(names)))
        jobs = [name for name in names if is_job_id(name)]
        self._named.update(dict.fromkeys(jobs))
        unfinished = [id for id, job in state.jobs.items() if not job.is_over]
        self._concerned.update(dict.fromkeys(jobs if names else unfinished))

    def _apply(self, event: Event) -> None:
        """An event that does not fit concerns its jobs; the number of an attempt is never given again."""
        skipped, fits = self.state.skipped, True
        try:
            apply(self.state, event)
        except IMPOSSIBLE:
            fits = False
        key = getattr(event, "key", None)
        if key is not None:
            never_again(self.state, key)
        if not fits or self.state.skipped != skipped:
            jobs = dict.fromkeys(event.jobs)
            self._concerned.update(jobs)
            self._named.update(jobs)

    async def _believe_history(self, store: Store) -> None:
        """A job with a record in the history has ended, even if its end is among what is missing."""
        for job in self.concerned:
            if await store.history(job.job.id) is not None:
                apply(self.state, JobForgotten(at=0.0, cause="its record", job=job.job.id))
        for id in self.gone:
            if await store.history(id) is not None:
                del self._named[id]
