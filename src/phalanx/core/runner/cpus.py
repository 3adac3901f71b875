"""Which CPUs of the kernel each lane of a node has: whole cores have CPUs of their own, the others share the rest.

The coordinator counts cores; the runner chooses the CPUs here, on the NUMA nodes that the grant names. A lane keeps its
CPUs until it ends, so attempts that run one after another in it find the same ones. A CPU is never the own one of two
lanes. Parts of cores, and tasks that asked for no core, share what is nobody's own; what is shared changes with every
lane that takes or gives back. Applying it (cpuset or affinity) is left to `runner/limits.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from msgspec import Struct

from phalanx.core.model.amounts import MILLI, MILLICORES
from phalanx.core.model.resources import Capacity, Cores, Grant


class CpuShare(Struct, frozen=True):
    """The CPUs of one lane; none named: all. `numa` is the NUMA node that its CPUs and its memory are bound to."""

    cpus: tuple[int, ...] = ()
    is_own: bool = False
    numa: int | None = None


class CpuTable:
    """The CPUs of one node, and which lane has which."""

    def __init__(self, capacity: Capacity, cpus: Collection[int] = ()) -> None:
        """`cpus` are those that the runner may use; without them no lane gets CPUs of its own, only its NUMA node's."""
        self._all = tuple(sorted(cpus))
        self._numa = {each.id: tuple(each.cpus) for each in capacity.numa}
        self._has_own = _are_enough(capacity, self._all)
        self._shares: dict[int, CpuShare] = {}
        self._owners: dict[int, int] = {}  # CPU → lane

    @property
    def gives_own(self) -> bool:
        """Whether whole cores get CPUs of their own here: there is a CPU for each core that is offered."""
        return self._has_own

    @property
    def lanes(self) -> dict[int, CpuShare]:
        return self._shares

    def take(self, lane: int, grant: Grant) -> CpuShare:
        """The CPUs of a lane with this grant. A lane that has some keeps them."""
        if lane in self._shares:
            return self._shares[lane]
        own = self._choose(grant) if self._has_own and is_whole(grant.cores) else ()
        share = CpuShare(own or self.shared(grant.numa), bool(own), grant.numa)
        return self._keep(lane, share)

    def adopt(self, lane: int, share: CpuShare) -> None:
        """A lane that an earlier runner started has this share; its CPUs are its own only if they are nobody else's."""
        known = tuple(cpu for cpu in share.cpus if cpu in self._all)
        is_own = share.is_own and bool(known) and not self._owners.keys() & set(known)
        if lane not in self._shares:
            self._keep(lane, CpuShare(known, is_own, share.numa))

    def give_back(self, lane: int) -> bool:
        """The lane has ended; returns whether it had CPUs of its own, so that more is shared now."""
        share = self._shares.pop(lane, None)
        if share is None or not share.is_own:
            return False
        for cpu in share.cpus:
            del self._owners[cpu]
        return True

    def shared(self, numa: int | None = None) -> tuple[int, ...]:
        """The CPUs that are nobody's own, all of them or those of one NUMA node; empty: any.

        If none are left, all that exist: then every core is granted, and only tasks that asked for none run beside.
        """
        if numa is None and not self._has_own:
            return ()  # nobody has any, so nobody need be kept off them
        among = self._all if numa is None else self._numa.get(numa, ())
        return tuple(cpu for cpu in among if cpu not in self._owners) or tuple(among)

    def refreshed(self) -> list[int]:
        """Bring the lanes that share up to date with what is shared now; returns those that have other CPUs by that."""
        changed = []
        for lane, share in self._shares.items():
            if not share.is_own and (cpus := self.shared(share.numa)) != share.cpus:
                self._shares[lane] = CpuShare(cpus, False, share.numa)
                changed.append(lane)
        return changed

    def _keep(self, lane: int, share: CpuShare) -> CpuShare:
        self._shares[lane] = share
        if share.is_own:
            self._owners.update(dict.fromkeys(share.cpus, lane))
        return share

    def _choose(self, grant: Grant) -> tuple[int, ...]:
        """CPUs for a whole number of cores, on the NUMA nodes of the grant; none if there are not enough."""
        wanted = MILLICORES[grant.cores] // MILLI
        chosen: list[int] = []
        for numa, part in grant.numa_cores:
            chosen += self._free(self._numa.get(numa, ()), chosen)[: MILLICORES[part] // MILLI]
        # Parts of a core that are left on several NUMA nodes make whole ones only together.
        among = self._all if grant.numa is None else self._numa.get(grant.numa, ())
        chosen += self._free(among, chosen)[: max(0, wanted - len(chosen))]
        return tuple(sorted(chosen)) if len(chosen) == wanted else ()

    def _free(self, among: Iterable[int], taken: Collection[int]) -> list[int]:
        return [cpu for cpu in among if cpu not in self._owners and cpu not in taken]


def is_whole(cores: Cores) -> bool:
    """Whether it is a whole number of cores, of which a task may have CPUs of its own."""
    return cores >= 1 and MILLICORES[cores] % MILLI == 0


def _are_enough(capacity: Capacity, cpus: tuple[int, ...]) -> bool:
    """Whether every core offered is a CPU of its own: simulated hardware offers more than the machine has."""
    of_numa = [cpu for each in capacity.numa for cpu in each.cpus]
    return (
        0 < MILLICORES[capacity.cores] <= len(cpus) * MILLI
        and len(set(of_numa)) == len(of_numa)
        and set(of_numa) <= set(cpus)
        and all(each.cores <= len(each.cpus) for each in capacity.numa)
    )
