"""Which attempts hold places, which of them are leaving, and which places are promised, by the log.

This model shares no code with `apply`. The checkers of gangs and of preemption use it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import structs

from phalanx.core.cluster import events as e
from phalanx.core.cluster.change_events import JobHeld, JobUpdated
from phalanx.core.model.amounts import MILLICORES, written
from phalanx.core.model.job import Group, Job, JobId
from phalanx.core.model.orders import AttemptKey, Status
from phalanx.core.model.resources import Capacity, Grant

Gone = frozenset[AttemptKey]
Promised = dict[int, tuple[str, Grant]]  # by position: the node and the grant


class PlaceHolder:
    """An attempt that holds a place, or is queued in a lane."""

    def __init__(self, event: e.TaskPlaced, group: int) -> None:
        self.key = event.key
        self.node = event.node
        self.lane = (event.node, event.lane)
        self.grant = event.grant
        self.group = group
        self.formation = event.formation
        self.is_ready = False  # at the barrier
        self.has_started = False
        self.is_leaving = False


class Places:
    """All places of the cluster."""

    def __init__(self, capacities: dict[str, Capacity]) -> None:
        self.jobs: dict[JobId, Job] = {}
        self.holders: dict[AttemptKey, PlaceHolder] = {}
        self.promises: dict[JobId, Promised] = {}
        self.well: dict[JobId, set[int]] = {}  # positions that ended with code 0 since the job's last restart
        self._capacities = capacities

    def of(self, job: JobId) -> list[PlaceHolder]:
        return [holder for holder in self.holders.values() if holder.key[0] == job]

    def staying(self, job: JobId) -> Counter[int]:
        """How many of each group hold a place and are not leaving."""
        return Counter(holder.group for holder in self.of(job) if not holder.is_leaving)

    def ended_well(self, job: JobId) -> Counter[int]:
        """How many of each group have ended with code 0."""
        return Counter(self.jobs[job].group_at(position)[0] for position in self.well[job])

    def is_enough(self, job: JobId, held: Counter[int]) -> bool:
        """Whether a gang can start with so many members of each group."""
        return all(held[number] >= least(group) for number, group in enumerate(self.jobs[job].groups))

    def note(self, event: e.Event) -> None:
        match event:
            case e.JobSubmitted():
                self.jobs[event.job.id] = event.job
                self.well[event.job.id] = set()
            case JobUpdated() if event.priority is not None:
                self.jobs[event.job] = structs.replace(self.jobs[event.job], priority=event.priority)
                self.promises.pop(event.job, None)
            case e.TaskPlaced():
                group, _ = self.jobs[event.key[0]].group_at(event.key[1])
                self.holders[event.key] = PlaceHolder(event, group)
                if event.promised:
                    self.promises.pop(event.key[0], None)
            case e.AttemptReady():
                self.holders[event.key].is_ready = True
            case e.AttemptStarted():
                self.holders[event.key].has_started = True
            case e.AttemptEnded():
                del self.holders[event.key]
                if event.status in (Status.COMPLETED, Status.RUNNING):
                    self.well[event.key[0]].add(event.key[1])
            case e.RoomPromised():
                self._promised(event)
            case e.TasksEvicted():
                self._leave(event.keys)
            case _:
                self._note_whole(event)

    def _note_whole(self, event: e.Event) -> None:
        """Events that concern a whole job; most of them also end a promise made to it."""
        match event:
            case e.PromiseWithdrawn():
                del self.promises[event.job]
            case JobHeld():
                self.promises.pop(event.job, None)
            case e.GangRecalled():
                self._leave(each.key for each in self.of(event.job) if each.formation == event.formation)
            case e.TasksCancelled() | e.JobRestarted():
                scope = event.positions
                self._leave(each.key for each in self.of(event.job) if scope is None or each.key[1] in scope)
                self.promises.pop(event.job, None)
                if isinstance(event, e.JobRestarted):
                    self.well[event.job] -= self.well[event.job] if scope is None else set(scope)
            case e.JobSettled():
                self._leave(each.key for each in self.of(event.job))
                self.promises.pop(event.job, None)

    def _promised(self, event: e.RoomPromised) -> None:
        for job in event.displaced:
            del self.promises[job]
        self._leave(event.victims)
        self.promises[event.job] = {position: (node, grant) for position, node, grant in event.members}

    def _leave(self, keys: Iterable[AttemptKey]) -> None:
        for key in list(keys):
            self.holders[key].is_leaving = True

    def why_too_much(
        self,
        node: str,
        more: Iterable[Grant],
        gone: Gone = frozenset(),
        displaced: frozenset[JobId] = frozenset(),
    ) -> str:
        """What would be given out twice on a node with these grants, once all leaving attempts have ended; or "".

        Promised places count as given out. `gone` and `displaced` are not counted.
        """
        grants = [*self._kept(node, gone, displaced), *more]
        capacity = self._capacities[node]
        devices = Counter(device for grant in grants for device in grant.devices)
        if twice := [device for device, count in devices.items() if count > 1]:
            return f"device {twice[0]} of {node} twice"
        millis = sum(MILLICORES[grant.cores] for grant in grants)
        if millis > MILLICORES[capacity.cores]:
            return f"{written(millis)} of {capacity.cores} cores of {node}"
        memory = sum(grant.memory_bytes - grant.exclusive for grant in grants)  # one byte more than there is
        return "" if memory <= capacity.memory_bytes else f"{memory} bytes of {node}, which has fewer"

    def _kept(self, node: str, gone: Gone, displaced: frozenset[JobId]) -> Iterator[Grant]:
        """The grants on a node that stay: one for each lane with an attempt that stays, one for each promise."""
        lanes = {
            holder.lane: holder.grant
            for key, holder in self.holders.items()
            if holder.node == node and not holder.is_leaving and key not in gone
        }
        yield from lanes.values()
        for job, promised in self.promises.items():
            if job not in displaced:
                yield from (grant for where, grant in promised.values() if where == node)


def least(group: Group) -> int:
    """How many of a group a gang needs to start. Computed again here, because `Group.needed` is being checked."""
    return 0 if group.optional else group.min or group.tasks
