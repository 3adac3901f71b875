"""Makes one small cluster, and the jobs to be placed on it, from a seed.

Everything in the contract comes up often enough to collide: few nodes, few devices, layers with gaps and with the same
name twice, closed nodes, tenants of every priority, gangs with surplus, promises, quotas.
"""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from phalanx.core.model.job import Command, Gang, Gather, Group, Job, JobId
from phalanx.core.model.queues import Quota
from phalanx.core.model.resources import Capacity, Cores, Device, Grant, NumaNode, Request, Target
from phalanx.core.model.tenants import NEVER, Tenant
from phalanx.core.model.topology import Layer, Topology
from phalanx.core.model.waiting import Part
from tests.property.placement_oracle import Picture, Spot, fits, suitable, thousandths
from tests.property.placement_stage import Case, SmallGang, SmallGroup, SmallUnit, standing

WORDS = ("spine", "block", "rack")
NOW = 1000.0
TRUE = Command(("/bin/true",))


class Maker:
    """Makes one case; every choice comes from the seed."""

    def __init__(self, seed: int, crowded: bool, knotty: bool) -> None:
        self.chance = Random(f"{seed}/{crowded}" + "/knotty" * knotty)
        self.seed = seed
        self.crowded = crowded  # little room, many tenants: a case for evictions
        self.knotty = (
            knotty  # what is rare elsewhere is common: targets, labels, multiples, quotas, exact fits
        )
        self.lanes = 0

    def often(self, percent: int, knotty: int = 0) -> bool:
        return self.chance.randrange(100) < (max(percent, knotty) if self.knotty else percent)

    def case(self) -> Case:
        self._cluster()
        self.picture = Picture(tuple(self.topology.names()), self._spots(), (), {}, NOW)
        for number in range(self.chance.randint(*((2, 8) if self.crowded else (0, 5)))):
            self._tenants_of(f"old-{number}")
        count = self.chance.choice((1, 1, 1, 2) if self.crowded else (1, 1, 2, 3))
        units = tuple(self._unit(number) for number in range(count))
        if self.often(10, 30):
            self._limit()
        return Case(self.seed, self.topology, self.capacities, self.picture, units)

    def _limit(self) -> None:
        """A quota for the queue of all new units: what it holds now, and a little more."""
        held = [each.grant for each in self.picture.tenants if each.queue == "default"]
        word, used, more = self.chance.choice(
            (
                ("tasks", len(held), 6),
                ("cores", sum(thousandths(each.cores) for each in held) / 1000, 9),
                ("gpus", sum(len(each.devices) for each in held), 6),
            )
        )
        self.picture.quotas["default"] = Quota(**{word: used + self.chance.randint(0, more)})  # type: ignore[arg-type]

    # The cluster

    def _cluster(self) -> None:
        chance = self.chance
        layers = chance.choice((0, 1, 2, 2, 3, 3))
        self.topology = Topology(tuple(Layer(word, (f"x/{word}", word)) for word in WORDS[3 - layers :]))
        self.has_gaps, self.has_twins, self.has_pools = self.often(20), self.often(50), self.often(10, 50)
        self.style = chance.choice(("devices", "cores", "both", "both"))
        self.parts = Random(f"parts of cores {self.seed}")
        self.has_parts = self.parts.random() < 0.3
        self.kinds = ("h100",) if self.often(65) else ("h100", "a100")
        self.has_numa, self.has_memory = self.often(15), self.often(40)
        self.closes = self.often(40)
        nodes = chance.choice((1, 2, 3, 4, 4, 5, 6, 6, 7, 8, 8, 8))
        self.names = [f"n{number}" for number in range(nodes)]
        chance.shuffle(self.names)  # the order of rows is not the order of names
        self.capacities = tuple(self._capacity() for _ in self.names)
        self.closed = {name for name in self.names if self.closes and self.often(15)}

    def _capacity(self) -> Capacity:
        chance = self.chance
        cores = chance.randint(1, 6) if self.style != "devices" else 16
        gpus = 0 if self.style == "cores" else chance.choice((0, 1, 2, 2, 3, 4, 4))
        parts = (NumaNode(0, cores - cores // 2), NumaNode(1, cores // 2)) if self.has_numa else ()
        kind = chance.choice(self.kinds)
        devices = tuple(
            Device(
                index,
                chance.choice(self.kinds) if self.often(20) else kind,
                chance.choice((40, 80)),
                chance.choice((0, 1)) if self.has_numa else None,
            )
            for index in range(gpus)
        )
        memory = chance.randint(2, 10) if self.has_memory else 100
        return Capacity(cores, memory, parts, devices, self._labels())

    def _labels(self) -> dict[str, str]:
        labels, path = {}, ""
        for layer in self.topology.layers:
            name = f"{layer.name[0]}{self.chance.randint(1, 2)}"
            path += name
            if not (self.has_gaps and self.often(15)):
                # Under two parents the same name means two domains; otherwise names are unique.
                labels[self.chance.choice(layer.keys)] = name if self.has_twins else path
        if self.has_pools:
            labels["pool"] = self.chance.choice(("blue", "red"))
        return labels

    def _spots(self) -> tuple[Spot, ...]:
        return tuple(
            Spot(
                name, standing(self.topology, capacity.labels, name), name not in self.closed,
                capacity.cores, capacity.memory_bytes, capacity.devices, frozenset(capacity.labels.items()),
            )
            for name, capacity in zip(self.names, self.capacities, strict=True)
        )  # fmt: skip

    # The tenants

    def _tenants_of(self, job: JobId) -> None:
        chance = self.chance
        is_gang, is_promised = self.often(45), self.often(12)
        groups = chance.randint(1, 2) if is_gang else 1
        priority, evictable_at = chance.choice((0, 1, 1, 2, 3, 5)), chance.choice((0.0,) * 7 + (NEVER,))
        held, queue = [0] * groups, chance.choice(("default", "default", "other"))
        for group in range(groups):
            request = self._request()
            for _ in range(chance.randint(1, 4)):
                at = NOW + 50 if self.often(4, 15) and not is_promised else evictable_at
                held[group] += self._tenant(job, group, request, priority, at, is_promised, queue)
        if is_gang:
            self.picture.needed[job] = tuple(
                chance.choice((count, count, max(1, count - 1), max(1, count - 2), count + 1))
                for count in held
            )
        if sum(held) and not is_gang and self.often(8, 20):
            self._overdraw(job)

    def _tenant(
        self,
        job: JobId,
        group: int,
        request: Request,
        priority: int,
        evictable_at: float,
        is_promise: bool,
        queue: str,
    ) -> bool:
        grant = self._grant(request)
        if grant is None:
            return False
        self.lanes += 1
        row, given = grant
        key = (job, self.lanes) if is_promise else (self.names[row], self.lanes)
        since = NOW - self.chance.randint(1, 900)
        is_leaving = self.knotty and not is_promise and self.often(6)
        tenant = Tenant(
            key, job, queue, group, row, given, priority, NEVER if is_leaving else evictable_at, NEVER, since,
            is_leaving=is_leaving, is_promise=is_promise,
        )  # fmt: skip
        self.picture = self.picture.after((), (tenant,))
        return True

    def _grant(self, request: Request, rows: list[int] | None = None) -> tuple[int, Grant] | None:
        """A place for one task on some node that has room for it; devices and NUMA cores at random."""
        rows = list(range(len(self.names))) if rows is None else rows
        self.chance.shuffle(rows)
        for row in rows:
            free, asks = self.picture.free(row), (Part(request, 1, 1),)
            if fits(free, asks, (1,)):
                fitting = sorted(suitable(request, free.devices))
                devices = tuple(sorted(self.chance.sample(fitting, request.gpus)))
                return row, Grant(
                    request.cores, request.memory_bytes, devices, None, self._numa(row, request.cores)
                )
        return None

    def _numa(self, row: int, cores: Cores) -> tuple[tuple[int, Cores], ...]:
        left = {part.id: thousandths(part.cores) for part in self.capacities[row].numa}
        for tenant in self.picture.tenants:
            for part, count in tenant.grant.numa_cores if tenant.node_row == row else ():
                left[part] -= thousandths(count)
        found = []
        asked = thousandths(cores)
        for part, count in left.items():
            if take := min(asked, max(0, count)):
                found.append((part, take / 1000))
                asked -= take
        return tuple(found)

    def _overdraw(self, job: JobId) -> None:
        """What this job holds is promised to another already: it is leaving, and its node is given out twice."""
        heir, mine = f"{job}-heir", self.picture.of_job(job)
        if any(each.is_promise for each in mine):
            return
        leaving = [replace(each, evictable_at=NEVER, is_leaving=True) for each in mine]
        promised = [
            replace(
                each,
                key=(heir, number),
                job=heir,
                priority=each.priority + 1,
                evictable_at=0.0,
                is_promise=True,
            )
            for number, each in enumerate(mine)
        ]
        self.picture = self.picture.after([each.key for each in mine], leaving + promised)

    # The waiting units

    def _request(self) -> Request:
        chance = self.chance
        gpus = 0 if self.style == "cores" else chance.choice((0, 1, 1, 1, 1, 2, 2, 3, 4))
        cores: Cores = chance.choice((0, 1, 1, 1, 2, 2, 3)) if self.style != "devices" else 1
        cores = max(cores, 0 if gpus else 1)
        if (
            self.has_parts and self.parts.random() < 0.7
        ):  # its own random numbers: other cases stay as they were
            cores = self.parts.choice((0.001, 0.1, 0.25, 0.3, 0.5, 0.7, 1.5, 2.333))
        memory = chance.randint(0, 4) if self.has_memory else 0
        kind = chance.choice(self.kinds) if gpus and len(self.kinds) > 1 and self.often(50) else None
        size = 80 if gpus and self.often(10) else 0
        return Request(cores, memory, gpus, kind, size)

    def _likely(self) -> Request:
        """A request that mostly fits somewhere: most random ones never do."""
        request = self._request()
        for _ in range(3):
            if self._slots(request, 0)[()]:
                break
            request = self._request()
        return request

    def _unit(self, number: int) -> SmallUnit:
        job_id, rank_at = f"new-{number}", number
        priority = self.chance.choice((1, 2, 3, 3, 5, 8) if self.crowded else (0, 1, 2))
        may_evict = not self.often(4)
        if self.crowded and self.often(20):
            job = self._job(job_id, (Group(TRUE, self._likely(), tasks=2),), None, priority, may_evict)
            return SmallGroup(job, (-float(priority), rank_at, 0), job_id, {})
        gather = self._gather()
        job = self._job(job_id, self._groups(gather), Gang(gather=gather), priority, may_evict)
        stands = self._bind(job) if self.often(15, 30) else {}
        return self._gang(job, stands, rank_at)

    def _job(
        self, id: JobId, groups: tuple[Group, ...], gang: Gang | None, priority: int, may_evict: bool
    ) -> Job:
        return Job(id, groups, id, 0.0, priority=priority, gang=gang, may_evict=may_evict)

    def _groups(self, gather: tuple[Gather, ...]) -> tuple[Group, ...]:
        chance = self.chance
        count = chance.choice((1, 1, 1, 2, 2, 3))
        shared = self._likely()
        same = self.often(40)
        groups = []
        for number in range(count):
            request = shared if same else self._likely()
            if self.often(3, 25):
                request = replace(
                    request, target=Target(chance.choice(self.names), None, self._named(request.gpus))
                )
            if self.has_pools and self.often(40):
                request = replace(request, labels=(("pool", chance.choice(("blue", "red"))),))
            tasks = self._size(request, count, gather)
            least = chance.randint(1, tasks) if self.often(35, 50) else 0
            order = tuple(chance.sample(range(20), tasks)) if self.often(30) else ()
            groups.append(Group(TRUE, request, f"g{number}", tasks, least, indexes=order))
        return tuple(groups)

    def _named(self, gpus: int) -> tuple[int, ...]:
        """Mostly a target names the node alone; sometimes the very devices."""
        return tuple(self.chance.sample(range(4), gpus)) if gpus and self.often(30) else ()

    def _size(self, request: Request, groups: int, gather: tuple[Gather, ...]) -> int:
        """About as many members as the best domain has room for, so that yes and no are both common."""
        words = self.topology.names()
        depth = max(
            (words.index(rule.layer) for rule in gather if rule.must and rule.layer in words), default=0
        )
        best = max(self._slots(request, depth).values()) // groups + self.often(20)
        fewer = self.chance.randint(1, max(1, best))
        return max(1, min((10, 5, 4)[groups - 1], best if self.often(30, 60) else fewer))

    def _slots(self, request: Request, depth: int) -> dict[tuple[str, ...], int]:
        """How many of one request each domain of a depth could hold, alone; when crowded, on empty nodes."""
        asks = (Part(request, 1, 1),)
        slots: dict[tuple[str, ...], int] = {}
        for row, spot in enumerate(self.picture.spots):
            free = self.picture.free(row, self._everybody() if self.crowded else frozenset())
            room = next((n for n in range(9, 0, -1) if fits(free, asks, (n,))), 0)
            slots[spot.path[:depth]] = slots.get(spot.path[:depth], 0) + room * spot.is_open
        return slots

    def _everybody(self) -> frozenset[tuple[str, int]]:
        return frozenset(each.key for each in self.picture.tenants)

    def _gather(self) -> tuple[Gather, ...]:
        chance = self.chance
        words = self.topology.names()
        rules = []
        if self.often(45):
            rules.append(Gather(chance.choice(words[1:]), must=True))
        if self.often(30):
            rules.append(Gather(chance.choice(words[1:]), must=False))
        if self.often(20, 35):
            rules.append(
                Gather(chance.choice(words), must=self.often(30), multiple=chance.choice((2, 2, 3, 4)))
            )
        if self.often(3):
            rules.append(Gather(chance.choice(("Rack", "row")), must=self.often(50)))
        return tuple(rules)

    def _bind(self, job: Job) -> dict[int, list[int]]:
        """Some members hold places already, mostly close together; returns their rows by group."""
        first = self.chance.randrange(len(self.names))
        close = [first] if self.often(70) else list(range(len(self.names)))
        stands: dict[int, list[int]] = {}
        for number, group in enumerate(job.groups):
            for _ in range(self.chance.randint(0, group.tasks - (number == 0))):
                if (found := self._grant(group.request, list(close))) is not None:
                    row, grant = found
                    self.lanes += 1
                    key = (self.names[row], self.lanes)
                    come = Tenant(
                        key, job.id, "default", number, row, grant, job.priority, 0.0, NEVER, NOW - 9
                    )
                    self.picture = self.picture.after((), (come,))
                    stands.setdefault(number, []).append(row)
        if stands:
            self.picture.needed[job.id] = tuple(group.needed for group in job.groups)
        return stands

    def _gang(self, job: Job, stands: dict[int, list[int]], rank_at: int) -> SmallGang:
        left, asks, first = [], [], 0
        for number, group in enumerate(job.groups):
            indexes = group.indexes or tuple(range(group.tasks))
            members = [(index, first + place) for place, index in enumerate(indexes)]
            there = stands.get(number, [])
            gone = self.chance.sample(members, len(there))
            left.append(tuple(sorted(each for each in members if each not in gone)))
            asks.append(Part(group.request, max(0, group.needed - len(there)), group.tasks - len(there)))
            first += group.tasks
        rows = [row for there in stands.values() for row in there]
        counts = tuple((row, rows.count(row)) for row in sorted(set(rows)))
        return SmallGang(job, (-float(job.priority), rank_at, 0), job.id, tuple(left), tuple(asks), counts)
