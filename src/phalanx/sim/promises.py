"""Preemption: no attempt is evicted for nothing, and a promised place is given to no other job.

An eviction to make room and the promise of that room are one event. The victims are less urgent and may be evicted, a
gang among them keeps what it needs or leaves whole, and what is promised fits once they have gone. A promise ends
soon: it is kept exactly, all of it at once, or it is withdrawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from phalanx.core.cluster import events as e
from phalanx.core.model.job import JobId
from phalanx.core.model.orders import AttemptKey, Why
from phalanx.sim.floor import Floor
from phalanx.sim.places import Places, Promised, least
from phalanx.sim.violation import Violation

CLOCKS_S = 4.5  # how much two coordinators' clocks may differ, with a margin
LATE_S = 2.0  # how long after its deadline, or after the start of a term, a promise may still exist


class Promises:
    """What was promised, and which attempts were evicted for it."""

    def __init__(self, places: Places, floor: Floor, count: Callable[[str], None]) -> None:
        self._places = places
        self._floor = floor
        self._count = count
        self._evicted: set[AttemptKey] = set()
        self._until: dict[JobId, float] = {}
        self._redeemed: dict[JobId, Promised] = {}  # in this batch: what has yet to be given
        self._term_at = 0.0
        self._last_at = 0.0  # time of the batch before

    def was_evicted(self, key: AttemptKey) -> bool:
        """Whether the eviction of this attempt is durable."""
        return key in self._evicted

    # Events that became durable. `note` is called before `Places` applies the event.

    def note(self, event: e.Event, now: float) -> None:
        match event:
            case e.TermOpened():
                self._term_at = event.at
            case e.RoomPromised():
                self._promised(event, now)
            case e.TaskPlaced():
                self._placed(event)
            case e.TasksEvicted():
                self._taken(event)
            case e.AttemptEnded() if event.exit.why == Why.EVICTED and event.key not in self._evicted:
                raise Violation("preemption", f"{event.key} ended as evicted, but no event evicted it")
            case e.PromiseWithdrawn():
                self._withdrawn(event)

    def end_of_batch(self, at: float) -> None:
        """A promise is kept whole, and none stays for long.

        A batch that could not be written for long does not show what is decided next, so two batches must be late.
        """
        for job, left in self._redeemed.items():
            if left:
                raise Violation("nomination", f"{job} got its promised places but for {sorted(left)}")
        self._redeemed.clear()
        for job in self._places.promises:
            if min(at, self._last_at) > max(self._until[job], self._term_at) + LATE_S:
                late_s = at - self._until[job]
                raise Violation(
                    "nomination", f"the promise to {job} still exists {late_s:.1f} s after its end"
                )
        self._last_at = at

    def _promised(self, event: e.RoomPromised, now: float) -> None:
        if event.victims:
            self._count("eviction for room")
        preemptor = self._places.jobs[event.job]
        if event.job in self._places.promises:
            raise Violation("nomination", f"{event.job} was promised places twice")
        for job in event.displaced:
            self._count("promise displaced")
            if self._places.jobs[job].priority >= preemptor.priority:
                raise Violation(
                    "nomination", f"{job} lost its promise to {event.job}, which is not more urgent"
                )
        for key in event.victims:
            self._check_victim(key, event, now)
        for key in event.awaited:
            if not self._places.holders[key].is_leaving:
                raise Violation("preemption", f"{event.job} waits for {key}, which is not leaving")
        self._check_gangs(event)
        self._check_fits(event)
        self._evicted.update(event.victims)
        self._until[event.job] = event.until

    def _check_victim(self, key: AttemptKey, event: e.RoomPromised, now: float) -> None:
        victim, preemptor = self._places.jobs[key[0]], self._places.jobs[event.job]
        holder = self._places.holders.get(key)
        no = ""
        if holder is None or holder.is_leaving:
            no = "which was leaving already"
        elif victim.priority >= preemptor.priority:
            no = f"whose priority {victim.priority} is not below {preemptor.priority}"
        elif not victim.evictable:
            no = "whose job is not evictable"
        elif not preemptor.may_evict:
            no = "though its job may not evict"
        elif holder.has_started:
            no = self._too_young(key, victim.min_run_s, now)
        if no:
            raise Violation("preemption", f"{event.job} evicts {key}, {no}")

    def _too_young(self, key: AttemptKey, min_run_s: float, now: float) -> str:
        """Checked in true time; clocks differ a little, and run a little fast or slow."""
        ran_s = now - self._floor.begun_at[key]
        if ran_s >= 0.98 * min_run_s - CLOCKS_S:
            return ""
        return f"which had run for {ran_s:.1f} of the {min_run_s:.1f} s of its min_run"

    def _check_gangs(self, event: e.RoomPromised) -> None:
        """A gang that loses members of a group keeps as many of it as it needs, or loses all of them."""
        for job in dict.fromkeys(key[0] for key in event.victims):
            members = [each for each in self._places.of(job) if not each.is_leaving]
            staying = Counter(each.group for each in members if each.key not in event.victims)
            kept = staying + self._places.ended_well(job)
            groups = self._places.jobs[job].groups
            losing = {each.group for each in members if each.key in event.victims}
            too_few = [number for number in losing if kept[number] < least(groups[number])]
            if self._places.jobs[job].gang is not None and staying and too_few:
                raise Violation("preemption", f"{event.job} leaves {job} too small a gang: {dict(staying)}")

    def _check_fits(self, event: e.RoomPromised) -> None:
        """The promised places fit once the victims have gone, beside everything that others keep or are promised."""
        for node in dict.fromkeys(node for _, node, _ in event.members):
            mine = [grant for _, where, grant in event.members if where == node]
            gone = frozenset(event.victims)
            if too_much := self._places.why_too_much(node, mine, gone, frozenset(event.displaced)):
                raise Violation("preemption", f"what {event.job} was promised does not fit: {too_much}")
        if not event.members:
            raise Violation(
                "preemption", f"{len(event.victims)} attempts leave for {event.job}, and it gets nothing"
            )

    def _placed(self, event: e.TaskPlaced) -> None:
        job, position = event.key[0], event.key[1]
        if event.promised and job not in self._redeemed:
            self._redeemed[job] = dict(self._places.promises.get(job, {}))
            self._count("promise kept")
        if event.promised:
            promised = self._redeemed[job].pop(position, None)
            if promised != (event.node, event.grant):
                raise Violation(
                    "nomination",
                    f"{event.key} was promised {promised}, and got {event.grant} on {event.node}",
                )
        if event.opens and (too_much := self._why_not_free(event)):
            raise Violation("nomination", f"{event.key} got what is promised to others: {too_much}")

    def _why_not_free(self, event: e.TaskPlaced) -> str:
        """What is promised to others must still be free for them; the job's own promise does not count."""
        own = frozenset({event.key[0]}) if event.promised else frozenset()
        waiting = [
            grant
            for promised in self._redeemed.values()
            for node, grant in promised.values()
            if node == event.node
        ]
        return self._places.why_too_much(event.node, [event.grant, *waiting], displaced=own)

    def _taken(self, event: e.TasksEvicted) -> None:
        self._count("eviction by a user")
        if event.cause != "user":
            raise Violation("preemption", f"{event.keys[0]} was evicted by {event.cause} without a promise")
        self._evicted.update(event.keys)

    def _withdrawn(self, event: e.PromiseWithdrawn) -> None:
        self._count("promise withdrawn")
        if event.job not in self._places.promises:
            raise Violation("nomination", f"a promise to {event.job} was withdrawn that was never made")

    # What a coordinator believes.

    def compare(self, promised: set[JobId]) -> None:
        """Places are set aside for exactly the jobs that the log has promises for."""
        if wrong := sorted(promised ^ set(self._places.promises)):
            word = "still kept" if wrong[0] in promised else "no longer kept"
            raise Violation("nomination", f"places for {wrong[0]} are {word}, against what the log says")

    def finish(self) -> None:
        if self._places.promises:
            raise Violation(
                "nomination", f"{min(self._places.promises)} was promised places and never got them"
            )
