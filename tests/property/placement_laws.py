"""What must hold of every answer of the placement engine, compared with the brute force on one case.

Each law is a sentence; a case that breaks some returns those sentences. The engine's functions are arguments, so that
a test can pass one with a planted mistake and see that a law reports it. What is worth knowing but is no law, such as
how far the victims are from the fewest possible, is counted in `seen`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from phalanx.core.model.plan import GangPlacement, Placement, Policy, Snapshot
from phalanx.core.model.reason import Reason
from phalanx.core.model.tenants import NEVER, Tenant
from phalanx.core.placement.draft import Draft
from tests.property.eviction_oracle import (
    broken_by,
    can_make_room,
    fewest_broken,
    fit_where_they_are,
    is_victim,
    keeps_gangs_whole,
    on_their_way,
    smaller,
)
from tests.property.placement_oracle import (
    Counts,
    Errand,
    Keys,
    Picture,
    Search,
    admitted,
    suitable,
    thousandths,
)
from tests.property.placement_stage import Case, SmallGang, SmallUnit, errand_of, snapshot_of

Place = Callable[[Draft, Any], GangPlacement | Reason]
Room = Callable[[Draft, Any, Policy], GangPlacement | Reason]
POLICY = Policy()
NOBODY: Keys = frozenset()


class Trial:
    """One case, played: units are placed one after another in one draft, and evict if they find no room."""

    def __init__(
        self, case: Case, place: Place, room: Room | None = None, seen: Counter[str] | None = None
    ) -> None:
        self.case = case
        self.place = place
        self.room = room
        self.seen: Counter[str] = Counter() if seen is None else seen
        self.counts_best = (
            False  # whether to look for the fewest jobs that could have been broken: that is slow
        )
        self.snapshot = snapshot_of(case)

    def complaints(self) -> list[str]:
        """Every law that is broken."""
        found: list[str] = []
        answers = self._play(found)
        if not found:
            again = self._play(found)
            found += [] if again == answers else [f"the same snapshot gave {answers} and then {again}"]
        return found

    def _play(self, found: list[str]) -> list[GangPlacement | Reason]:
        before, draft, picture = photograph(self.snapshot), Draft(self.snapshot), self.case.picture
        answers: list[GangPlacement | Reason] = []
        for unit in self.case.units:
            answer = self._step(draft, unit, picture, found)
            if found:
                break
            if answer is not None:
                answers.append(answer)
            if isinstance(answer, GangPlacement):
                picture = picture.after(leaving(picture, answer), tenants_of(picture, unit, answer))
            found += same_accounts(self.snapshot, picture)
        proposed = draft.plan().gang_placements
        if not found and proposed != [each for each in answers if isinstance(each, GangPlacement)]:
            found.append(f"the plan has {proposed}, the answers were {answers}")
        if not found and photograph(self.snapshot) != before:
            found.append("after the plan was made the columns are not as they were before")
        return answers

    def _step(
        self, draft: Draft, unit: SmallUnit, picture: Picture, found: list[str]
    ) -> GangPlacement | Reason | None:
        """What becomes of one unit; None if it is a single task that fits, which is not tested here."""
        before = photograph(self.snapshot)
        answer: GangPlacement | Reason | None = None
        if isinstance(unit, SmallGang):
            if Search(picture, errand_of(unit)).can_place():
                found += self._needless(draft, unit)
            answer = self.place(draft, unit)
            found += placing_laws(picture, unit, answer, self.seen)
            found += untouched(before, answer, self.snapshot)
        elif Search(picture, errand_of(unit)).can_place():
            found += self._needless(draft, unit)
            return None
        if found or self.room is None or isinstance(answer, GangPlacement):
            return answer
        answer = self.room(draft, unit, POLICY)
        found += evicting_laws(picture, unit, answer, self.seen)
        found += untouched(before, answer, self.snapshot)
        if self.counts_best and isinstance(answer, GangPlacement) and not found:
            self._compare(picture, errand_of(unit), leaving(picture, answer))
        return answer

    def _needless(self, draft: Draft, unit: SmallUnit) -> Iterator[str]:
        """No tenant is evicted for a unit that fits without."""
        mark = draft.mark()
        answer = self.room(draft, unit, POLICY) if self.room is not None else None
        if isinstance(answer, GangPlacement) and (answer.victims or answer.displaced):
            yield f"it fits, and yet these would be evicted: {answer.victims} {answer.displaced}"
        draft.rollback(mark)

    def _compare(self, picture: Picture, errand: Errand, gone: Keys) -> None:
        broken, best = len(broken_by(picture, gone)), fewest_broken(picture, errand)
        assert best is not None, "room was made, so there is a way to make it"
        self.seen["evictions compared with the best"] += 1
        self.seen[f"jobs broken beyond the fewest: {broken - best}"] += 1


def placing_laws(
    picture: Picture, unit: SmallGang, answer: GangPlacement | Reason, seen: Counter[str]
) -> Iterator[str]:
    """What must hold of an answer of `place_gang`."""
    errand = errand_of(unit)
    search = Search(picture, errand)
    if isinstance(answer, Reason):
        seen["gangs without room"] += 1
        if any(errand.need) and search.can_place():
            yield f"unschedulable though it fits: {answer.code}, {answer.text}"
        elif search.can_place_all():
            yield f"unschedulable though all that may come would fit: {answer.code}, {answer.text}"
        return
    seen["gangs placed"] += 1
    if answer.victims or answer.displaced:
        yield f"placing evicts: {answer.victims} {answer.displaced}"
    complaints = list(member_laws(picture, unit, answer, NOBODY))
    yield from complaints or level_laws(search, placed_by_row(picture, unit, answer), seen)


def evicting_laws(
    picture: Picture, unit: SmallUnit, answer: GangPlacement | Reason, seen: Counter[str]
) -> Iterator[str]:
    """What must hold of an answer of `make_room` for a unit that finds no room."""
    errand = errand_of(unit)
    if isinstance(answer, Reason):
        seen["no room could be made"] += 1
        if any(errand.need) and can_make_room(picture, errand):
            yield f"no room made though victims would do: {answer.code}, {answer.text}"
        return
    seen["room made"] += 1
    gone = leaving(picture, answer)
    seen["victims"] += len(gone)
    yield from victim_laws(picture, errand, answer, gone)
    yield from member_laws(picture, unit, answer, gone)
    placed = placed_by_row(picture, unit, answer)
    for fewer in smaller(picture, gone):
        if not keeps_gangs_whole(picture, fewer) and fit_where_they_are(picture, errand, placed, fewer):
            yield f"too many victims: {sorted(gone - fewer)} could stay"


def victim_laws(picture: Picture, errand: Errand, gang_placement: GangPlacement, gone: Keys) -> Iterator[str]:
    known = {each.key for each in picture.tenants}
    if len(set(gang_placement.victims)) < len(gang_placement.victims) or not known.issuperset(
        gang_placement.victims
    ):
        yield f"victims twice, or who are not there: {gang_placement.victims}"
    if idle := [
        job for job in gang_placement.displaced if not any(each.is_promise for each in picture.of_job(job))
    ]:
        yield f"displaced without a promise: {idle}"
    for tenant in picture.tenants:
        may_go = is_victim(picture, errand, tenant) or tenant.key in gang_placement.awaited
        if tenant.key in gone and not may_go:
            yield f"{tenant.key} of {tenant.job} may not be evicted for {errand.job}"
    if strangers := set(gang_placement.awaited) - on_their_way(picture, errand):
        yield f"waited for, though nobody could take over their places: {sorted(strangers)}"
    for job in keeps_gangs_whole(picture, gone):
        yield f"gang {job} is left under its minimum"


def member_laws(
    picture: Picture, unit: SmallUnit, gang_placement: GangPlacement, gone: Keys
) -> Iterator[str]:
    """Every member is one that waits, has what it asked for, on an open node, and nothing is given twice."""
    errand = errand_of(unit)
    if gang_placement.job != errand.job:
        yield f"the gang placement is of {gang_placement.job}"
    yield from count_laws(unit, gang_placement)
    placed = placed_by_row(picture, unit, gang_placement)
    if not admitted(picture, errand, tuple(map(sum, zip(*placed.values(), strict=True))), gone):
        yield f"the quota of {errand.queue} does not admit {len(gang_placement.members)} members"
    rows = {spot.name: row for row, spot in enumerate(picture.spots)}
    by_row: dict[int, list[Placement]] = {}
    for member in gang_placement.members:
        by_row.setdefault(rows[member.node], []).append(member)
        yield from grant_laws(picture, unit, member)
    for row, members in by_row.items():
        if not picture.spots[row].is_open:
            yield f"closed node used: {picture.spots[row].name}"
        free = picture.free(row, gone)
        devices = [index for member in members for index in member.grant.devices]
        if len(set(devices)) < len(devices) or not {each.index for each in free.devices}.issuperset(devices):
            yield f"devices {devices} of {picture.spots[row].name} are not all free, once each"
        if sum(thousandths(member.grant.cores) for member in members) > free.cores:
            yield f"more cores than are free on {picture.spots[row].name}"
        if sum(member.grant.memory_bytes for member in members) > free.memory:
            yield f"more memory than is free on {picture.spots[row].name}"
    yield from rule_laws(picture, errand, placed)
    if isinstance(unit, SmallGang):
        yield from rank_laws(picture, unit, gang_placement)


def count_laws(unit: SmallUnit, gang_placement: GangPlacement) -> Iterator[str]:
    positions = [member.position for member in gang_placement.members]
    if len(set(positions)) < len(positions):
        yield f"a member is placed twice: {positions}"
    if not positions:
        yield "an empty gang placement"
    for number, wanted in enumerate(errand_of(unit).wanted):
        mine = waiting_positions(unit, number)
        count = len(set(mine) & set(positions))
        if not wanted.need <= count <= wanted.most:
            yield f"group {number}: {count} placed, {wanted.need} to {wanted.most} wanted"
        if set(mine[:count]) != set(mine) & set(positions):
            yield f"group {number}: members {sorted(set(mine) & set(positions))} are not the first of {mine}"
        positions = [position for position in positions if position not in mine]
    if positions:
        yield f"members that do not wait: {positions}"


def grant_laws(picture: Picture, unit: SmallUnit, member: Placement) -> Iterator[str]:
    request = unit.job.groups[unit.job.group_at(member.position)[0]].request
    spot, grant = next(each for each in picture.spots if each.name == member.node), member.grant
    if (grant.cores, grant.memory_bytes) != (request.cores, request.memory_bytes):
        yield f"member {member.position} was given {grant} for {request}"
    fitting = suitable(request, spot.devices)
    if len(set(grant.devices)) != request.gpus or not fitting.issuperset(grant.devices):
        yield f"member {member.position} was given devices {grant.devices} of {spot.name} for {request}"
    if request.target is not None and request.target.host != spot.name:
        yield f"member {member.position} was put on {spot.name}, not on its target"
    if not spot.labels.issuperset(request.labels):
        yield f"member {member.position} was put on {spot.name}, which lacks {request.labels}"
    parts = [cores for _, cores in grant.numa_cores]
    if any(cores <= 0 for cores in parts) or sum(map(thousandths, parts)) > thousandths(grant.cores):
        yield f"member {member.position} has NUMA cores {grant.numa_cores} for {grant.cores}"
    if member.job != unit.job.id or member.lane is not None:
        yield f"member {member.position} goes into lane {member.lane} of {member.job}"


def rule_laws(picture: Picture, errand: Errand, placed: dict[int, Counts]) -> Iterator[str]:
    """Must-gather holds with the members that are bound, and multiples hold wherever a new member is placed."""
    for rule in errand.gather:
        if rule.layer not in picture.layers:
            if rule.must:
                yield f"placed though no layer is called {rule.layer}"
            continue
        depth = picture.layers.index(rule.layer)
        new = Counter[tuple[str, ...]]()
        for row, counts in placed.items():
            new[picture.spots[row].path[:depth]] += sum(counts)
        bound = Counter(picture.spots[row].path[:depth] for row in errand.bound)
        if rule.must and len(new | bound) > 1:
            yield f"must-gather violated: {rule.layer} domains {sorted(new | bound)}"
        if wrong := [domain for domain in new if (new[domain] + bound[domain]) % rule.multiple]:
            yield f"not a multiple of {rule.multiple} in {rule.layer} domains {wrong}"


def level_laws(search: Search, placed: dict[int, Counts], seen: Counter[str]) -> Iterator[str]:
    """The members are in one domain of the lowest layer that holds all of them, or at least those needed."""
    errand, picture = search.errand, search.picture
    counts = tuple(map(sum, zip(*placed.values(), strict=True)))
    goal = errand.most if search.can_place_all() else errand.need
    if any(a < b for a, b in zip(counts, goal, strict=True)):
        yield f"placed {counts} though all of {goal} would fit"
        return
    if not admitted(picture, errand, errand.most):
        return  # the quota decides how many may come, and which of them is not tested here
    home = common(picture, placed)
    apart = apart_from_devices(search)
    if apart is not None and len(goal) > 1 and any(picture.free(row).devices for row in placed):
        apart = None  # groups beside each other may be placed elsewhere first
    if apart is not None:
        seen["kept off nodes with free devices"] += 1
        if on := [picture.spots[row].name for row in placed if picture.free(row).devices]:
            yield f"it wants no devices and stands on {on}, where some are free, though other nodes would do"
            return
        search = apart
    lowest = search.lowest(goal)
    if picture.layers[len(home)] != lowest:
        yield f"not the lowest layer: all stand in {picture.layers[len(home)]} {home}, one {lowest} would hold them"
        return
    seen[f"stands in one {lowest}"] += 1
    if goal == errand.need != errand.most:
        seen["only the needed fit"] += 1
    if goal == errand.most and len(goal) == 1:
        yield from tightness_laws(search, home, goal)
        yield from grade_laws(search, home, goal, placed)
        words = [rule.layer for rule in errand.gather if not rule.must and rule.layer in picture.layers]
        for word in [*words, picture.layers[-1]]:
            depth = picture.layers.index(word)
            used = len({picture.spots[row].path[:depth] for row in placed})
            seen[f"{word} domains beyond the fewest: {used - search.fewest(word, home[:depth], counts)}"] += 1


def tightness_laws(search: Search, home: tuple[str, ...], goal: Counts) -> Iterator[str]:
    """Of the domains that would do, the one with the fewest slots is taken, so that the larger ones stay whole.

    A node's slots may be counted to the end or only up to the members there are; both are tight. A gang that prefers
    few domains of some layer may skip a tighter one for it.
    """
    errand = search.errand
    if errand.bound or any(rule.multiple > 1 or not rule.must for rule in errand.gather):
        return
    homes = search.homes(search.picture.layers[len(home)], goal)
    grades = {each: search.grade_needed(each, goal[0]) for each in homes}
    if grades[home] > min(grades.values()):
        yield f"not the cheapest: {home} needs nodes of grade {grades[home]}, all that would do: {grades}"
        return
    homes = [each for each in homes if grades[each] == grades[home]]
    some, every = ({each: search.slots(each, limit) for each in homes} for limit in (errand.most[0], 99))
    if some[home] > min(some.values()) and every[home] > min(every.values()):
        yield f"not the tightest: {home} has {every[home]} slots, all that would do: {every}"


def grade_laws(
    search: Search, home: tuple[str, ...], goal: Counts, placed: dict[int, Counts]
) -> Iterator[str]:
    """Inside its domain a gang does not use nodes of a higher grade than those that would do."""
    errand = search.errand
    if errand.bound or any(rule.multiple > 1 or not rule.must for rule in errand.gather):
        return
    enough = search.grade_needed(home, goal[0])
    if beyond := [search.picture.spots[row].name for row in placed if search.grade(row) > enough]:
        yield f"{beyond} are used, though nodes up to grade {enough} of {home} would do"


def apart_from_devices(search: Search) -> Search | None:
    """The search on nodes without free devices, if the errand has to stay there; None if it need not, or cannot."""
    errand = search.errand
    if errand.bound or any(each.request.gpus and each.most for each in errand.wanted):
        return None
    if any(not rule.must and rule.layer in search.picture.layers for rule in errand.gather):
        return None
    apart = Search(search.picture.without_free_devices(), errand)
    return apart if apart.can_place_all() else None


def rank_laws(picture: Picture, unit: SmallGang, gang_placement: GangPlacement) -> Iterator[str]:
    """In order of index the members of a group are in one run on each node, and in each domain of each layer."""
    paths = {spot.name: spot.path for spot in picture.spots}
    where = {member.position: paths[member.node] for member in gang_placement.members}
    for number in range(len(unit.asks)):
        line = [where[position] for _, position in unit.members(number) if position in where]
        for depth in range(1, len(picture.layers)):
            runs = [
                path[:depth] for at, path in enumerate(line) if not at or line[at - 1][:depth] != path[:depth]
            ]
            if len(set(runs)) < len(runs):
                yield f"group {number}: ranks are scattered over {picture.layers[depth]} domains: {runs}"
                return


def waiting_positions(unit: SmallUnit, group: int) -> list[int]:
    if isinstance(unit, SmallGang):
        return [position for _, position in unit.members(group)]
    return list(unit.ready(1))


def placed_by_row(picture: Picture, unit: SmallUnit, gang_placement: GangPlacement) -> dict[int, Counts]:
    """How many members of each group are on each row."""
    rows = {spot.name: row for row, spot in enumerate(picture.spots)}
    found: dict[int, list[int]] = {}
    for member in gang_placement.members:
        counts = found.setdefault(rows[member.node], [0] * len(unit.job.groups))
        counts[unit.job.group_at(member.position)[0]] += 1
    return {row: tuple(counts) for row, counts in found.items()}


def common(picture: Picture, placed: dict[int, Counts]) -> tuple[str, ...]:
    """The path of the lowest domain that holds all these rows."""
    paths = [picture.spots[row].path for row in placed]
    depth = next((at for at in range(len(paths[0]), -1, -1) if len({path[:at] for path in paths}) == 1), 0)
    return paths[0][:depth]


def leaving(picture: Picture, gang_placement: GangPlacement) -> Keys:
    """All tenants that go: the victims, the promises of the jobs that give way, and those that were leaving."""
    promised = [
        each.key for job in gang_placement.displaced for each in picture.of_job(job) if each.is_promise
    ]
    return frozenset([*gang_placement.victims, *promised, *gang_placement.awaited])


def tenants_of(picture: Picture, unit: SmallUnit, gang_placement: GangPlacement) -> list[Tenant]:
    """The members as they are in the draft: they cannot be evicted there."""
    rows = {spot.name: row for row, spot in enumerate(picture.spots)}
    return [
        Tenant(
            (f"draft/{member.job}", member.position), member.job, unit.job.queue,
            unit.job.group_at(member.position)[0], rows[member.node], member.grant,
            unit.job.priority, NEVER, NEVER, picture.now,
        )
        for member in gang_placement.members
    ]  # fmt: skip


def untouched(before: object, answer: GangPlacement | Reason, snapshot: Snapshot) -> Iterator[str]:
    if isinstance(answer, Reason) and photograph(snapshot) != before:
        yield f"a no left its traces in the columns: {answer.code}"


def same_accounts(snapshot: Snapshot, picture: Picture) -> Iterator[str]:
    """The draft's ledgers agree with the picture."""
    for row, ledger in enumerate(snapshot.nodes.ledgers):
        free = picture.free(row)
        here = (*ledger.free[:2], ledger.devices_free)
        if here != (free.cores, free.memory, {each.index for each in free.devices}):
            yield f"{ledger.name} has {here} free in the draft, should be {free}"
    for queue, used in snapshot.queues.usage.items():
        held = [each.grant for each in picture.tenants if each.queue == queue]
        if used[:2] != [len(held), sum(thousandths(each.cores) for each in held)]:
            yield f"the usage of queue {queue} is not what its tasks hold"


def photograph(snapshot: Snapshot) -> object:
    """Everything that a draft may change, by value."""
    table, tenants = snapshot.nodes, snapshot.tenants
    ledgers = [
        (*each.free, dict(each.numa_free), set(each.devices_free), set(each.devices_held),
         set(each.devices_promised), each.promises)
        for each in table.ledgers
    ]  # fmt: skip
    usage = {name: list(used) for name, used in snapshot.queues.usage.items() if used[0]}
    columns = [column.tolist() for column in (*table.columns.free, table.open, tenants.used)]
    return ledgers, usage, columns, dict(tenants.slots), dict(tenants.needed)
