"""The decision: which unit is placed next and where, and for which of them tenants are evicted. It changes nothing.

Units are taken in order: priority, then arrival or what their users hold (`precedence.py`). Units that ask for the same
stand in one class: when the first of them finds no room, the class is passed over until room appears, so a pass costs
as much as it places. A unit behind the first that found no room is placed only if that one is not delayed (`reserve/`).
Which nodes a gang takes is decided in `gang/`, which tenants are evicted in `preempt/`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator
from itertools import islice

from phalanx.core.model.job import JobId
from phalanx.core.model.plan import ClassNote, GangPlacement, Placement, Plan, Policy, Snapshot
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.resources import Grant
from phalanx.core.model.waiting import Ask, Block, Rank, Unit, WaitingClass, WaitingGang, WaitingGroup
from phalanx.core.placement.dispatch import Dispatcher, is_dispatched, place_by_mode
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.gang.grants import NoLayout, try_gang
from phalanx.core.placement.node_limits import counted, is_too_much, which_limit
from phalanx.core.placement.precedence import InLine, Place, Precedence
from phalanx.core.placement.preempt.make_room import make_most_room
from phalanx.core.placement.prefetch import is_placed_whole, prefetch, prefetch_stages
from phalanx.core.placement.reserve.reservation import Reservation, Unplaced, run_s
from phalanx.core.placement.retry_nodes import spot_for
from phalanx.core.placement.spread import KnownSpots, Spots
from phalanx.core.placement.turns import Turns

HELD_MAX = 1000  # how many units one plan looks at behind those that would delay the head


class PlanFailed(Exception):
    """A defect of ours: no plan can be made while units of this class are looked at. Nothing is changed."""

    def __init__(self, waiting_class: WaitingClass, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.waiting_class = waiting_class
        self.job = waiting_class.units[waiting_class.ranks[0]].job.id


def plan(snapshot: Snapshot, policy: Policy) -> Plan:
    """Propose placements for the units that wait, in order, and for units behind them that delay none of them."""
    turn = _Pass(snapshot, policy)
    turns = turn.turns(snapshot.waiting.classes)
    with turn.draft:
        try:
            while turns and not turn.is_over:
                (_, waiting_class, unit), until = turns.pop()
                going_on = turn.serve(waiting_class, unit.rank, until)
                if going_on is not None:
                    turns.push(waiting_class, going_on)
                else:
                    turn.precedence.over(waiting_class)
            is_cut = turn.is_over
            turn.prefetch()
        except Exception as error:
            if (looked_at := turn.front.reserves_for or turn.serves) is None:
                raise
            raise PlanFailed(looked_at, error) from error
        more = is_cut or turn.is_full or turn.has_more
        turn.precedence.remember()
        return turn.draft.plan(turn.memory, more=more, deferred=turn.deferred)


class _Pass:
    """One plan in the making."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self.draft = Draft(snapshot, policy.score)
        self.memory = snapshot.memory.copied(snapshot.waiting)
        self.precedence = Precedence(self.draft, snapshot.waiting, self.memory, plans=True)
        self.front = Unplaced(self.draft, policy, snapshot.gain, self.precedence)
        self._policy = policy
        self._gain = snapshot.gain
        self._now = snapshot.now
        self._snapshot = snapshot
        self._held: set[WaitingClass] = set()  # classes in which one that runs long was held back
        self._held_count = 0
        self._evictions = 0  # how often it was worked out whom to evict
        self._spots = KnownSpots(self.draft, self.precedence)
        self._until: Place | None = None  # where the next class in line stands
        self._positions: dict[Rank, Iterator[int]] = {}  # of units that have had a turn and will have another
        self._dispatcher = Dispatcher(snapshot.nodes, snapshot.dispatch, snapshot.now)
        self.deferred: list[JobId] = []  # those that wait for one node, and could go to another
        self._promised: set[JobId] = set()  # jobs whose victims have to leave first
        self._lowest: int | None = None  # priority of the least urgent tenant
        self._capped: list[InLine] = []  # those whose queue or user may hold no more
        self._is_cut = False
        self.has_more = False  # the next pass can evict, or place what was held back for a head that has gone
        self.serves: WaitingClass | None = None

    @property
    def is_over(self) -> bool:
        """The pass has opened enough lanes; the next one goes on."""
        return self._is_cut or self.draft.size >= self._policy.openings_max

    @property
    def is_full(self) -> bool:
        """The pass is long enough, with the tasks that queue in lanes."""
        return self.draft.size >= self._policy.placements_max

    def turns(self, classes: dict[Hashable, WaitingClass]) -> Turns:
        """The first of every class that may have a chance; the others have found no room already."""
        chances: list[tuple[WaitingClass, Unit]] = []
        others: list[tuple[Block, tuple[WaitingClass, Unit]]] = []
        notes, gain = self.memory.notes, self._gain
        now, failed = self._now, self.memory.failed
        for waiting_class in classes.values():
            if failed and failed.get(waiting_class.number, (0.0, ""))[0] > now:
                continue
            unit, note = waiting_class.units[waiting_class.ranks[0]], notes.get(waiting_class.number)
            if (
                note is None
                or note.blocked_at != gain
                or note.last_entry != waiting_class.last_entry
                or note.blocked_by is Block.HELD
                or (note.evict_at <= now and self._may_evict(waiting_class, unit))
            ):
                chances.append((waiting_class, unit))
            else:
                self.precedence.over(waiting_class)
                others.append((note.blocked_by, (waiting_class, unit)))
        in_line = self.precedence.in_line
        self._capped = [in_line(*each) for by, each in others if by in (Block.QUOTA, Block.USER)]
        self.front.begin([in_line(*each) for by, each in others if by is Block.ROOM])
        return Turns(self.precedence, chances)

    def serve(self, waiting_class: WaitingClass, rank: Rank, until: Place | None) -> Unit | None:
        """Place units of one class. Returns where to go on when another class has had its turn, if anywhere."""
        self.serves, self._until = waiting_class, until
        if self._is_still_held(waiting_class, waiting_class.units[rank]):
            self._held.add(waiting_class)
            return None
        for at in range(bisect_left(waiting_class.ranks, rank), len(waiting_class.ranks)):
            unit = waiting_class.units[rank := waiting_class.ranks[at]]
            if self._is_past_its_turn(unit):
                return unit
            size, block = self.draft.size, self._place(waiting_class, unit)
            if self.draft.size > size:
                self.precedence.served(waiting_class, unit)
            if block is Block.TURN:
                return unit
            if block is Block.HELD:
                self._held.add(waiting_class)
                self._held_count += 1
                if self._held_count >= HELD_MAX or self._policy.backfill == "none":
                    break
            elif block is not None:
                self._pass_over(waiting_class, unit, block)
                return None
            if self.is_over:
                return None
        if waiting_class in self._held:
            self._pass_over(waiting_class, waiting_class.units[rank], Block.HELD)
        return None

    def _is_past_its_turn(self, unit: Unit) -> bool:
        """Whether the next class in line goes first."""
        return self._until is not None and self.precedence.place(unit) > self._until

    def _gives_way(self, unit: WaitingGroup) -> bool:
        """Whether it has had its turn, since its user was given something just now."""
        return self.precedence.is_fair(unit) and self._is_past_its_turn(unit)

    def prefetch(self) -> None:
        """Short tasks of the first without room queue in their lanes; or of the first whose quota is used up."""
        first = self.front.first or min(self._capped, default=None)
        if first is not None and not (unit := first.unit).is_gang:
            self.serves = first.waiting_class
            if unit.pool is not None:
                prefetch_stages(
                    first.waiting_class, unit, self._snapshot, self.memory, self.draft, self._policy
                )
            else:
                prefetch(unit, self._snapshot, self.draft, self._policy)
            self.has_more |= bool(self._held) and is_placed_whole(unit, self.draft)

    def _pass_over(self, waiting_class: WaitingClass, unit: Unit, block: Block) -> None:
        """The class gets nothing more until there may be more room."""
        note = self.memory.of(waiting_class)
        behind = note.held_behind
        if block is Block.HELD:
            behind = None if self.front.first is None else self.front.first.unit.rank
        self.memory.notes[waiting_class.number] = ClassNote(
            waiting_class.last_entry, self._gain, block, behind, note.hopeless_at, note.evict_at
        )
        if block in (Block.HELD, Block.NODE):
            return
        if block in (Block.QUOTA, Block.USER):
            self._capped.append(self.precedence.in_line(waiting_class, unit))
        else:
            self.front.join(waiting_class, unit)

    def _is_still_held(self, waiting_class: WaitingClass, unit: Unit) -> bool:
        """Held back before, nothing has ended since, and the same one goes first and would be delayed."""
        note = self.memory.notes.get(waiting_class.number)
        now = (Block.HELD, self._gain, waiting_class.last_entry)
        if note is None or (note.blocked_by, note.blocked_at, note.last_entry) != now:
            return False
        return self.front.is_before(unit) and self.front.is_first(note.held_behind)

    def _place(self, waiting_class: WaitingClass, unit: Unit) -> Block | None:
        """Place what there is room for; otherwise say why something is left."""
        passes = self._policy.backfill != "none" or unit.comes_back
        if not passes and self.front.reservation(unit) is not None:
            return Block.HELD
        if unit.job.id in self._promised or unit.job.id in self._dispatcher.merged:
            return None
        if unit.is_gang:
            return self._place_gang(waiting_class, unit)
        return self._place_group(waiting_class, unit)

    def _place_group(self, waiting_class: WaitingClass, unit: WaitingGroup) -> Block | None:
        queues, table = self.draft.queues, self.draft.nodes
        quota = queues.room(unit.job.queue_user, counted(table, queues, unit))
        if quota == 0:
            return self._without(which_limit(queues, unit), waiting_class, unit)
        if is_dispatched(unit):
            return self._dispatch(waiting_class, unit, quota)
        nodes = self._spots.of(unit)
        most = self._policy.openings_max - self.draft.size
        self.front.note_start(unit.job)
        if self.front.is_before(unit) and nodes.best() is not None:
            guard = self.front.reservation(unit)
            if guard is not None and not self._ends_in_time(guard, unit):
                return self._fill_spare(
                    waiting_class, unit, guard, nodes, most if quota is None else min(most, quota)
                )
        for placed, position in enumerate(self._ready(unit, most)):
            if placed == quota:
                return which_limit(queues, unit)
            spot = nodes.best()
            if spot is None:
                return self._without(Block.ROOM, waiting_class, unit)
            if (spot := spot_for(self._snapshot, self.draft, unit, position, spot)) is None:
                return which_limit(queues, unit)
            self._take(waiting_class, unit, position, spot)
            nodes.taken(spot[0])
            if self._gives_way(unit):
                return Block.TURN
        return None

    def _ready(self, unit: WaitingGroup, most: int) -> Iterator[int]:
        """Positions to place. One that comes to its turn again goes on where it left off."""
        if not self.precedence.is_fair(unit):
            return unit.ready(most)
        if (found := self._positions.get(unit.rank)) is None:
            found = self._positions[unit.rank] = unit.ready(self._policy.openings_max)
        return islice(found, most)

    def _dispatch(self, waiting_class: WaitingClass, unit: WaitingGroup, quota: int | None) -> Block | None:
        """Place tasks where their mode wants them, unless the head would be delayed there."""
        self.front.note_start(unit.job)
        guard = self.front.reservation(unit)
        if guard is not None and self._ends_in_time(guard, unit):
            guard = None
        if guard is not None and waiting_class in self._held:
            return Block.HELD
        most = self._policy.openings_max - self.draft.size
        block = place_by_mode(self._dispatcher, self.draft, waiting_class, unit, guard, most, quota)
        if block is Block.NODE:
            self.deferred.append(unit.job.id)
        if block is Block.QUOTA:
            return which_limit(self.draft.queues, unit)
        return self._without(block, waiting_class, unit) if block is Block.ROOM else block

    def _fill_spare(
        self, waiting_class: WaitingClass, unit: WaitingGroup, guard: Reservation, nodes: Spots, most: int
    ) -> Block | None:
        """Place tasks that will still run when the head is to start: only where it leaves room for them."""
        if waiting_class in self._held:
            return Block.HELD
        for position in self._ready(unit, most):
            if self._ends_in_time(guard, unit):  # as the one before it does, beside which it may run
                if (spot := nodes.best()) is None:
                    return self._without(Block.ROOM, waiting_class, unit)
            elif (spot := guard.spot(unit.request, self._now + run_s(unit.job), nodes.held)) is None:
                spot = nodes.best()
                if spot is None or not guard.make_way([spot]):
                    return Block.HELD
            if is_too_much(self.draft.queues, unit, spot[1]):
                return which_limit(self.draft.queues, unit)
            self._take(waiting_class, unit, position, spot)
            nodes.taken(spot[0])
            if self._gives_way(unit):
                return Block.TURN
        return None

    def _take(self, kind: WaitingClass, unit: WaitingGroup, position: int, spot: tuple[int, Grant]) -> None:
        node, grant = self.draft.nodes.names[spot[0]], spot[1]
        self.draft.place(spot[0], Placement(unit.job.id, position, node, grant), unit.job.queue_user)
        self.precedence.served(kind, unit)

    def _place_gang(self, waiting_class: WaitingClass, unit: WaitingGang) -> Block | None:
        mark = self.draft.mark()
        found = try_gang(self.draft, Ask(unit))
        if isinstance(found, GangPlacement) and not self.front.is_reserved(unit):
            self.draft.rollback(mark)  # what the head needs is worked out as if this one were not there
            self.front.reservation(unit)
            found = try_gang(self.draft, Ask(unit))
        if isinstance(found, NoLayout):
            return self._without(Block.ROOM, waiting_class, unit)
        if isinstance(found, Reason):
            block = Block.USER if "user" in found.numbers else Block.QUOTA
            return block if found.tier is Tier.NEVER else self._without(block, waiting_class, unit)
        self.front.note_start(unit.job)
        guard = self.front.reservation(unit)
        if guard is None or unit.comes_back or self._may_pass(guard, unit, found):
            return None
        self.draft.rollback(mark)
        return None if waiting_class not in self._held and self._squeeze_in(guard, unit) else Block.HELD

    def _squeeze_in(self, guard: Reservation, unit: WaitingGang) -> bool:
        """Look for other nodes for a gang that would delay the head, and then for other nodes for the head."""
        mark = self.draft.mark()
        found = self.draft.without(guard.set_aside(), lambda: try_gang(self.draft, Ask(unit)))
        if isinstance(found, GangPlacement) and guard.stay(self._places(found), self._now + run_s(unit.job)):
            return True
        self.draft.rollback(mark)
        found = try_gang(self.draft, Ask(unit))
        if isinstance(found, GangPlacement) and guard.make_way(self._places(found)):
            return True
        self.draft.rollback(mark)
        return False

    def _may_pass(self, guard: Reservation, unit: Unit, gang_placement: GangPlacement) -> bool:
        """Whether these members may go before the head; if they outstay its start, their places are counted."""
        if self._ends_in_time(guard, unit):
            return True
        found = (self.draft.tenants.get(key) for key in gang_placement.victims)
        leaving = [tenant for tenant in found if tenant is not None]
        return guard.stay(self._places(gang_placement), self._now + run_s(unit.job), leaving)

    def _ends_in_time(self, guard: Reservation, unit: Unit) -> bool:
        return self._now + run_s(unit.job) <= guard.at

    def _places(self, gang_placement: GangPlacement) -> list[tuple[int, Grant]]:
        return [(self.draft.nodes.rows[each.node], each.grant) for each in gang_placement.members]

    def _without(self, block: Block, waiting_class: WaitingClass, unit: Unit) -> Block | None:
        """There is no room, or no quota: others may have to make way, or a part of a gang may go where it can."""
        if self._may_evict(waiting_class, unit) and self._evict(waiting_class, unit):
            return None
        if block is Block.ROOM and unit.is_gang and self._place_part(unit):
            return None
        return block

    def _may_evict(self, waiting_class: WaitingClass, unit: Unit) -> bool:
        """Whether it is worth looking for victims: a cheap answer, and then not again for a while."""
        if not self._policy.evicts or not unit.job.may_evict:
            return False
        note = self.memory.notes.get(waiting_class.number)
        if note is not None and note.evict_at > self._now and note.last_entry == waiting_class.last_entry:
            return False
        if self._lowest is None:
            tenants = self.draft.tenants
            self._lowest = int(tenants.priority[tenants.used].min(initial=unit.job.priority))
        if self._lowest < unit.job.priority:
            return True
        self.memory.look_later(waiting_class, self._now + self._policy.evict_every_s)
        return False

    def _evict(self, waiting_class: WaitingClass, unit: Unit) -> bool:
        """Ask others to leave for it, unless its own turn has brought it places: a promise would hold those up."""
        if self.draft.positions_of(unit.job.id):
            return False
        if self._evictions >= self._policy.evictions_max:
            self.has_more = self.has_more or bool(self._promised)
            return False
        self._evictions += 1
        guard = self.front.reservation(unit)
        mark = self.draft.mark()
        found = make_most_room(self.draft, unit, self._policy)
        if isinstance(found, GangPlacement) and (guard is None or self._may_pass(guard, unit, found)):
            self._promised.add(unit.job.id)
            self._spots.forget()  # victims may leave more room than was needed
            self.front.note_start(unit.job)
            return True
        self.draft.rollback(mark)
        self.memory.look_later(waiting_class, self._now + self._policy.evict_every_s)
        return False

    def _place_part(self, unit: WaitingGang) -> bool:
        """Let members of a gang that need not start whole keep what there is, while the others look on.

        A deadlock needs two gangs that hold halves, so only the first may, and only if nobody else holds one.
        """
        if not unit.may_hold_part:
            return False
        if self.front.reservation(unit) is not None:
            return False
        if not isinstance(try_gang(self.draft, Ask(unit), partial=True), GangPlacement):
            return False
        self._is_cut = True  # what is left of it waits as another unit, which the next pass will find
        return True
