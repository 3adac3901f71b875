"""Brute force for placement: what is possible on a small cluster, found by trying everything.

`eviction_oracle.py` says which tenants may be evicted.

Written from the contract alone, with plain counting, and without the ledgers, columns and trees that the engine uses.
A `Picture` is the cluster as a person would draw it, an `Errand` is what is to be placed on it. Every question is
answered over *all* divisions of the members over the nodes; one division is a vector of counts, one number for each
group, and the set of the vectors that a domain can hold is the sum of its children's sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from itertools import combinations, product
from operator import or_

from phalanx.core.model.job import Gather
from phalanx.core.model.queues import Quota
from phalanx.core.model.resources import Device, Request
from phalanx.core.model.tenants import Tenant, TenantKey
from phalanx.core.model.waiting import Part

Counts = tuple[int, ...]  # members of each group
Keys = frozenset[TenantKey]


def thousandths(cores: float) -> int:
    """Cores as a whole number, as one would count coins."""
    return round(1000 * cores)


@dataclass(frozen=True)
class Spot:
    """One node. `path` names its domains from the outermost layer inward, and itself last."""

    name: str
    path: tuple[str, ...]
    is_open: bool
    cores: float
    memory: int
    devices: tuple[Device, ...]
    labels: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class Free:
    """What is left of a node."""

    name: str
    labels: frozenset[tuple[str, str]]
    cores: int  # in thousandths
    memory: int
    devices: tuple[Device, ...]


@dataclass(frozen=True)
class Picture:
    """The whole cluster. `layers` are the names of its depths, from the cluster to the node."""

    layers: tuple[str, ...]
    spots: tuple[Spot, ...]
    tenants: tuple[Tenant, ...]
    needed: dict[str, tuple[int, ...]]
    now: float
    quotas: dict[str, Quota] = field(default_factory=dict)

    def free(self, row: int, without: Keys = frozenset()) -> Free:
        """What is left of a node if the tenants of these keys had left it.

        It is negative where a place is promised before its holder has gone; then nothing else is placed there at all,
        as the ledgers have it.
        """
        spot = self.spots[row]
        there = [each for each in self.tenants if each.node_row == row and each.key not in without]
        taken = {index for each in there for index in each.grant.devices}
        cores = thousandths(spot.cores) - sum(thousandths(each.grant.cores) for each in there)
        memory = spot.memory - sum(each.grant.memory_bytes for each in there)
        left = tuple(device for device in spot.devices if device.index not in taken)
        return Free(spot.name, spot.labels, cores, memory, left)

    def without_free_devices(self) -> Picture:
        """The same cluster with every node closed that has a free device."""
        return replace(
            self,
            spots=tuple(
                replace(spot, is_open=spot.is_open and not self.free(row).devices)
                for row, spot in enumerate(self.spots)
            ),
        )

    def after(self, gone: Iterable[TenantKey], come: Iterable[Tenant]) -> Picture:
        """The same cluster when some have left and others have come."""
        left = set(gone)
        return replace(self, tenants=(*(each for each in self.tenants if each.key not in left), *come))

    def of_job(self, job: str) -> list[Tenant]:
        """The tenants that a job can count on: a leaving one counts as gone, though its place is not free yet."""
        return [each for each in self.tenants if each.job == job and not each.is_leaving]


@dataclass(frozen=True)
class Errand:
    """What is to be placed: a gang, or one task as a gang of one."""

    job: str
    wanted: tuple[Part, ...]
    gather: tuple[Gather, ...] = ()
    bound: tuple[int, ...] = ()  # rows where members of the job already are
    priority: int = 0
    may_evict: bool = True
    queue: str = "default"

    @property
    def need(self) -> Counts:
        return tuple(each.need for each in self.wanted)

    @property
    def most(self) -> Counts:
        return tuple(each.most for each in self.wanted)


class Box:
    """Sets of count vectors up to `most`, each set as one whole number: bit `number(v)` says that v is in it."""

    def __init__(self, most: Counts) -> None:
        self.most = most
        self.steps = [1]
        for limit in most:  # a sum of two vectors must not spill into the next place
            self.steps.append(self.steps[-1] * (2 * limit + 1))
        self.vectors = list(product(*(range(limit + 1) for limit in most)))
        self.nothing = 1
        self.all = self.where(lambda _: True)

    def number(self, counts: Counts) -> int:
        return sum(count * step for count, step in zip(counts, self.steps, strict=False))

    def where(self, holds: Callable[[Counts], bool]) -> int:
        return reduce(or_, (1 << self.number(each) for each in self.vectors if holds(each)), 0)

    def of_multiple(self, multiple: int, there: int) -> int:
        """None at all, or as many as make a multiple with those that are there already."""
        return self.where(lambda counts: not any(counts) or (sum(counts) + there) % multiple == 0)

    def at_least(self, need: Counts) -> int:
        return self.where(lambda counts: all(a >= b for a, b in zip(counts, need, strict=True)))

    def sum(self, one: int, other: int) -> int:
        """Every sum of a vector of the one set and a vector of the other that stays within `most`."""
        total = 0
        while other:
            lowest = other & -other
            total |= one << (lowest.bit_length() - 1)
            other ^= lowest
        return total & self.all

    def list(self, found: int) -> list[Counts]:
        return [each for each in self.vectors if found >> self.number(each) & 1]


@cache
def a_box(most: Counts) -> Box:
    return Box(most)


def fits(free: Free, wanted: tuple[Part, ...], counts: Counts) -> bool:
    """Whether a node can hold these many members of each group at once: counted, and devices by Hall's theorem."""
    asked = [(each.request, count) for each, count in zip(wanted, counts, strict=True) if count]
    if not asked:
        return True
    if any(request.target is not None and request.target.host != free.name for request, _ in asked):
        return False
    if not all(free.labels.issuperset(request.labels) for request, _ in asked):
        return False
    if sum(thousandths(request.cores) * count for request, count in asked) > free.cores:
        return False
    if sum(request.memory_bytes * count for request, count in asked) > free.memory:
        return False
    gpus = [
        (request.gpus * count, suitable(request, free.devices)) for request, count in asked if request.gpus
    ]
    return all(
        sum(demand for demand, _ in some) <= len(frozenset[int]().union(*(devices for _, devices in some)))
        for size in range(1, len(gpus) + 1)
        for some in combinations(gpus, size)
    )


def admitted(picture: Picture, errand: Errand, counts: Counts, without: Keys = frozenset()) -> bool:
    """Whether the quota of its queue lets the errand have these members, if the tenants of these keys had left."""
    quota = picture.quotas.get(errand.queue)
    if quota is None:
        return True
    held = [each.grant for each in picture.tenants if each.queue == errand.queue and each.key not in without]
    more = [(each.request, count) for each, count in zip(errand.wanted, counts, strict=True)]
    sums = (
        (quota.tasks, len(held), sum(counts)),
        (
            None if quota.cores is None else thousandths(quota.cores),
            sum(thousandths(each.cores) for each in held),
            sum(thousandths(each.cores) * count for each, count in more),
        ),
        (
            quota.memory_bytes,
            sum(each.memory_bytes for each in held),
            sum(each.memory_bytes * count for each, count in more),
        ),
        (quota.gpus, sum(len(each.devices) for each in held), sum(each.gpus * count for each, count in more)),
    )
    return all(limit is None or not new or used + new <= limit for limit, used, new in sums)


def suitable(request: Request, devices: Iterable[Device]) -> frozenset[int]:
    """Indexes of the devices that a request could be given."""
    named = request.target.devices if request.target else ()
    return frozenset(
        device.index
        for device in devices
        if request.gpu_type in {None, device.kind}
        and device.memory_bytes >= request.gpu_memory_bytes
        and (not named or device.index in named)
    )


def grade(spot: Spot, free: Free, request: Request) -> int:
    """What of a node would be used: the size of the devices given out first, none at all being the least."""
    if not request.gpus:
        left = [device.memory_bytes for device in free.devices]
        return 0 if not spot.devices else 1 if not left else 2 + min(left)
    fitting = suitable(request, free.devices)
    sizes = sorted(device.memory_bytes for device in free.devices if device.index in fitting)
    alone = [size for size in sizes if sizes.count(size) >= request.gpus]
    return alone[0] if alone else sizes[request.gpus - 1] if len(sizes) >= request.gpus else 0


@cache
def holdable(free: Free, wanted: tuple[Part, ...]) -> int:
    """All vectors of members that one node can hold, as a set of the errand's box."""
    box = a_box(tuple(each.most for each in wanted))
    return box.where(lambda counts: fits(free, wanted, counts))


@dataclass(frozen=True)
class Search:
    """One errand on one picture, with some tenants thought away."""

    picture: Picture
    errand: Errand
    without: Keys = frozenset()
    _known: dict[tuple[str, ...], int] = field(default_factory=dict)

    @property
    def box(self) -> Box:
        return a_box(self.errand.most)

    def can_place(self) -> bool:
        """Whether every needed member finds a place at once, with all rules kept."""
        options = self._options(self.errand.need)
        return any(self._whole(domain) & options for domain in self._allowed(self._must_depth()))

    def can_place_all(self) -> bool:
        """The same for every member that may be placed now."""
        return self.lowest(self.errand.most) is not None

    def lowest(self, at_least: Counts) -> str | None:
        """The lowest layer at which one domain holds so many members under all rules, or None if none does."""
        options, must = self._options(at_least), self._must_depth()
        if must is None:
            return None
        for depth in range(len(self.picture.layers) - 1, must - 1, -1):
            if any(self._whole(domain) & options for domain in self._allowed(depth)):
                return self.picture.layers[depth]
        return None

    def homes(self, layer: str, at_least: Counts) -> list[tuple[str, ...]]:
        """The domains of a layer that hold so many members under all rules."""
        options = self._options(at_least)
        depth = self.picture.layers.index(layer)
        return [domain for domain in self._allowed(depth) if self._whole(domain) & options]

    def grade(self, row: int) -> int:
        """How precious a node is for the first group."""
        return grade(
            self.picture.spots[row], self.picture.free(row, self.without), self.errand.wanted[0].request
        )

    def grade_needed(self, domain: tuple[str, ...], count: int) -> int:
        """The lowest grade such that the nodes of a domain up to that grade have slots for so many."""
        grades = sorted({self.grade(row) for row in range(len(self.picture.spots))})
        return next(each for each in grades if self.slots(domain, count, each) >= count)

    def slots(self, domain: tuple[str, ...], limit: int, highest: int | None = None) -> int:
        """How many members of the first group the nodes of a domain could take, each counted up to a limit."""
        total = 0
        for row, spot in enumerate(self.picture.spots):
            if highest is not None and self.grade(row) > highest:
                continue
            if spot.is_open and spot.path[: len(domain)] == domain:
                free = self.picture.free(row, self.without)
                some = range(limit, 0, -1)
                total += next((n for n in some if fits(free, self.errand.wanted[:1], (n,))), 0)
        return total

    def fewest(self, layer: str, home: tuple[str, ...], counts: Counts) -> int:
        """The smallest number of domains of a layer that can hold these members inside `home`."""
        depth, goal = self.picture.layers.index(layer), 1 << self.box.number(counts)
        inside = [domain for domain in self.domains(depth) if domain[: len(home)] == home]
        for size in range(1, len(inside) + 1):
            for some in combinations(inside, size):
                if reduce(self.box.sum, (self.held_by(domain) for domain in some), self.box.nothing) & goal:
                    return size
        raise ValueError(f"{counts} do not fit into {home} at all")

    def domains(self, depth: int) -> list[tuple[str, ...]]:
        return sorted({spot.path[:depth] for spot in self.picture.spots})

    def held_by(self, domain: tuple[str, ...]) -> int:
        """All vectors that a domain can hold with the multiples kept in it and below it."""
        if domain not in self._known:
            self._known[domain] = self._held_by(domain) & self._multiple_in(domain)
        return self._known[domain]

    def _held_by(self, domain: tuple[str, ...]) -> int:
        depth = len(domain)
        if depth == len(self.picture.layers) - 1:
            row = next(row for row, spot in enumerate(self.picture.spots) if spot.path == domain)
            if not self.picture.spots[row].is_open:
                return self.box.nothing
            return holdable(self.picture.free(row, self.without), self.errand.wanted)
        below = sorted({spot.path[: depth + 1] for spot in self.picture.spots if spot.path[:depth] == domain})
        return reduce(self.box.sum, (self.held_by(child) for child in below), self.box.nothing)

    def _options(self, at_least: Counts) -> int:
        """The vectors that would do and that the quota admits."""
        options = self.box.at_least(at_least)
        if self.errand.queue not in self.picture.quotas:
            return options
        return options & self.box.where(
            lambda counts: admitted(self.picture, self.errand, counts, self.without)
        )

    def _whole(self, domain: tuple[str, ...]) -> int:
        """What may be in a domain if nothing is outside it: the multiples above it count too."""
        above = [domain[:depth] for depth in range(len(domain))]
        return reduce(lambda held, outer: held & self._multiple_in(outer), above, self.held_by(domain))

    def _multiple_in(self, domain: tuple[str, ...]) -> int:
        word = self.picture.layers[len(domain)]
        rules = [rule.multiple for rule in self.errand.gather if rule.layer == word and rule.multiple > 1]
        there = sum(self.picture.spots[row].path[: len(domain)] == domain for row in self.errand.bound)
        return reduce(lambda held, rule: held & self.box.of_multiple(rule, there), rules, self.box.all)

    def _must_depth(self) -> int | None:
        """The depth of the deepest layer that all members have to share; None if a rule names no layer at all."""
        musts = [rule.layer for rule in self.errand.gather if rule.must]
        if any(word not in self.picture.layers for word in musts):
            return None
        return max((self.picture.layers.index(word) for word in musts), default=0)

    def _allowed(self, depth: int | None) -> list[tuple[str, ...]]:
        """The domains of a depth in which, with the members that are bound already, the must rules are kept."""
        must = self._must_depth()
        if depth is None or must is None:
            return []
        homes = {self.picture.spots[row].path[:must] for row in self.errand.bound}
        return [domain for domain in self.domains(depth) if all(domain[:must] == home for home in homes)]
