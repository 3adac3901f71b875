"""Addresses of the overlay network, as the log has them: held once, not given out while they rest, tokens used once.

It shares no code with `apply`. Times are those of the events: who writes the next one compares the same numbers. What
has come by the clock of one coordinator has come, though the next one's may be behind.
"""

from __future__ import annotations

from collections.abc import Callable

from phalanx.core.cluster import events as e
from phalanx.core.cluster import overlay_events as o
from phalanx.core.cluster.overlay import ReservedAddress
from phalanx.core.model.job import JobId
from phalanx.core.model.orders import AttemptKey, Status
from phalanx.core.model.overlay import OverlayRules
from phalanx.sim.violation import Violation

SLACK_S = 0.001  # of rounding


class AddressChecker:
    """Who holds which address, until when each rests, and what became of each reservation."""

    def __init__(self, count: Callable[[str], None]) -> None:
        self.rules = OverlayRules()
        self._count = count
        self._blocks: dict[str, str] = {}
        self._held: dict[str, AttemptKey] = {}
        self._of: dict[AttemptKey, str] = {}
        self._rests_until: dict[str, float] = {}
        self._reserved: dict[str, ReservedAddress] = {}  # by address
        self._bound: dict[JobId, str] = {}  # the address of the job that has shown its token
        self._used: set[JobId] = set()  # of those, the jobs that were placed
        self._over: set[JobId] = set()
        self._tokens: set[str] = set()  # ids of reservations whose tokens were used
        self._shown_at = 0.0  # the latest time that an event has

    def note(self, event: e.Event) -> None:
        """An event became durable."""
        self._shown_at = max(self._shown_at, event.at)
        match event:
            case o.BlockAssigned():
                self._assigned(event)
            case o.AddressReserved():
                self._reserve(event)
            case o.ReservationEnded():
                self._end_reservation(event)
            case e.JobSubmitted():
                self._submitted(event)
            case e.TaskPlaced() if event.grant.address:
                self._placed(event)
            case e.AttemptEnded():
                self._ended(event)
            case e.TasksCancelled() | e.JobSettled() | e.TasksAbandoned():
                self._job_over(event.job, event.at)

    def _assigned(self, event: o.BlockAssigned) -> None:
        others = {node for node, block in self._blocks.items() if block == event.block and node != event.node}
        if event.block and others:
            raise Violation("addresses", f"{event.node} gets {event.block}, which {others} has")
        if event.node in self._blocks and event.block:
            raise Violation(
                "addresses", f"{event.node} had {self._blocks[event.node]} and gets {event.block}"
            )
        self._blocks[event.node] = event.block

    def _reserve(self, event: o.AddressReserved) -> None:
        made = event.reservation
        self._require_free(made.address, f"a reservation of {made.user}")
        self._reserved[made.address] = made
        self._count("address reserved")

    def _end_reservation(self, event: o.ReservationEnded) -> None:
        made = self._reserved.pop(event.address, None)
        if made is None or made.id != event.id or made.id in self._tokens:
            raise Violation("addresses", f"reservation {event.id} ends, which is not open")
        self._count("reservation released" if event.released else "reservation expired")

    def _submitted(self, event: e.JobSubmitted) -> None:
        address = event.job.groups[0].request.address
        if not address:
            return
        made, target = self._reserved.get(address), event.job.groups[0].request.target
        if made is None or made.id in self._tokens:
            raise Violation(
                "addresses", f"{event.job.id} was given {address} for a token that was used before"
            )
        if event.at >= made.expires_at or made.user != event.job.user or target is None:
            raise Violation("addresses", f"{event.job.id} was given {address} for a token that is not good")
        if target.host != made.node:
            raise Violation(
                "addresses", f"{event.job.id} goes to {target.host} with an address of {made.node}"
            )
        self._tokens.add(made.id)
        self._bound[event.job.id] = address
        self._count("token used")

    def _placed(self, event: e.TaskPlaced) -> None:
        address = event.grant.address
        if (other := self._held.get(address)) is not None:
            raise Violation("addresses", f"{event.key} was given {address}, which {other} holds")
        if self._bound.get(event.key[0]) != address:
            self._require_free(address, str(event.key))
        else:
            self._used.add(event.key[0])
        if not event.opens:
            raise Violation("addresses", f"{event.key} was queued in a lane with an address")
        self._held[address] = event.key
        self._of[event.key] = address
        self._count("address given")

    def _require_free(self, address: str, what: str) -> None:
        if address in self._held or address in self._reserved:
            raise Violation("addresses", f"{what} was given {address}, which is not free")
        left_s = self._rests_until.get(address, 0.0) - self._shown_at
        if left_s > SLACK_S:
            raise Violation("addresses", f"{what} was given {address}, which rests for {left_s:.1f} s more")

    def _ended(self, event: e.AttemptEnded) -> None:
        job, address = event.key[0], self._of.pop(event.key, None)
        if address is not None:
            del self._held[address]
            if self._bound.get(job) != address:
                self._rest(address, event.at)
        if event.status in (Status.COMPLETED, Status.FAILED, Status.CANCELLED) or job in self._over:
            self._job_over(job, event.at)

    def _job_over(self, job: JobId, at: float) -> None:
        """A job with a token has one task: whatever ends of it, ends it. Its address rests after its last attempt."""
        address = self._bound.get(job)
        if address is None:
            return
        self._over.add(job)
        if address in self._held:
            return
        del self._bound[job]
        del self._reserved[address]
        if job in self._used:
            self._rest(address, at)

    def _rest(self, address: str, at: float) -> None:
        """Without a quarantine it does not rest, whatever the clock of the next coordinator says."""
        if self.rules.quarantine_s > 0:
            self._rests_until[address] = at + self.rules.quarantine_s
