"""The limits of attempts on this node: which cgroups and CPUs each one is started with, and what is said of its end.

Whole cores get CPUs of their own (`core/runner/cpus.py`), held by a cpuset where the runner may make one, else by
affinity, which a task can undo. Each lane has one set of cgroups for CPUs, CPU time, processes and devices
(`limit_sets.py`); a task that asked for memory has one more for that. On v2 one cgroup holds everything. What the node
holds and what it does not is told to the coordinator (`isolation`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from phalanx.core.model.orders import AttemptKey
from phalanx.core.model.resources import ISOLATED, Capacity, Grant, Isolation
from phalanx.core.runner.attempts import ProcessEnd
from phalanx.core.runner.cpus import CpuShare, CpuTable, is_whole
from phalanx.runner.cgroup_limits import NO_LIMITS, TaskLimits, as_list
from phalanx.runner.cgroups import Cgroup, Cgroups, number_in
from phalanx.runner.device_nodes import DeviceNodes
from phalanx.runner.keeper.files import SCRATCH
from phalanx.runner.keeper_versions import MEMOS_SINCE
from phalanx.runner.limit_sets import LimitSet, LimitSets
from phalanx.runner.scratch import VARIABLE, ScratchFolders

PIDS_MAX = 4096
WATCH_S = 5.0
PEAKS = ("memory.peak", "memory.max_usage_in_bytes")  # v2, v1


class LimitMemo(Struct, frozen=True, omit_defaults=True):
    """What a later runner has to know of an attempt's limits."""

    cpus: tuple[int, ...] = ()
    is_own: bool = False
    numa: int | None = None
    set: int | None = None  # the number of its set of cgroups
    memory_bytes: int = 0  # what it may use, if that is watched


class LaunchLimits(Struct, frozen=True):
    """What the keeper is told of an attempt's limits."""

    cgroups: tuple[str, ...] = ()
    cpus: tuple[int, ...] = ()  # by affinity; where a cpuset holds them, none
    memo: str = ""
    processes_max: int = 0  # of its whole account, where no cgroup counts its own
    env: dict[str, str] = {}  # where its scratch folder is
    scratch: str = ""  # the same, if the keeper makes it


class WithoutRights(Struct, frozen=True):
    """What is done where cgroups cannot be made."""

    processes_max: int = 0  # of the account; see `rlimits.py`
    watches_memory: bool = False  # and tasks above what they asked for are ended


class _LaneLimits:
    """One lane: the attempts in it, and what holds their limits."""

    __slots__ = ("cores", "denied", "grant", "keys", "launch", "set", "sets")

    def __init__(self, sets: LimitSets) -> None:
        self.sets = sets  # those of its keeper
        self.keys: set[AttemptKey] = set()
        self.set: LimitSet | None = None
        self.cores: float = 0
        self.denied = NO_LIMITS.denied
        # What its attempts are started with, and the grant that this is for; None: not known, or one's own.
        self.launch: LaunchLimits | None = None
        self.grant: Grant | None = None


class AttemptLimits:
    """The limits of this node's attempts, from their launch until nothing of them is alive."""

    def __init__(
        self,
        cgroups: Cgroups,
        capacity: Capacity,
        cpus: Sequence[int] = (),
        pids_max: int = PIDS_MAX,
        nodes: DeviceNodes | None = None,
        scratch: ScratchFolders | None = None,
        others: Sequence[Cgroups] = (),
        without_rights: WithoutRights | None = None,
    ) -> None:
        """`cpus` are those that the runner may use; none: tasks are bound to no CPU but those of their NUMA node.

        Each keeper has cgroups of its own; `others` are those of all but the first.
        """
        self._all = [LimitSets(each) for each in (cgroups, *others)]
        self._table = CpuTable(capacity, cpus)
        self._numa = {each.id: each.cpus for each in capacity.numa}
        self._devices = capacity.devices
        self._pids_max = pids_max
        self._nodes = nodes or DeviceNodes({})
        self._scratch = scratch
        self._with_scratch: set[AttemptKey] = set()
        self._lanes: dict[int, _LaneLimits] = {}
        self._lane_of: dict[AttemptKey, int] = {}
        self._memory: dict[AttemptKey, tuple[Cgroups, Cgroup]] = {}
        self._awaited: set[str] = set()  # cgroups of adopted attempts that have not started
        instead = without_rights or WithoutRights()
        has_pids = "pids" in self._all[0].controllers or not pids_max
        self._processes_max = 0 if has_pids else instead.processes_max
        self._watches_memory = instead.watches_memory and bool(cgroups.why_not)
        self._watched: dict[AttemptKey, int] = {}  # the memory that attempts may use, where that is watched

    def tracking(self, cgroups: Cgroups | None = None, owner: str = "") -> str | None:
        """The folder for a keeper's own cgroups, for those of one owner alone if there is one.

        None where the sets are in the same hierarchy.
        """
        sets = self._of(cgroups)
        if sets.are_on_v2:
            return None
        return sets.cgroups.tracking_of(owner) if owner else sets.cgroups.tracking

    def _of(self, cgroups: Cgroups | None) -> LimitSets:
        """The sets in a keeper's cgroups; without, those of the first."""
        return next(each for each in self._all if cgroups is None or each.cgroups is cgroups)

    @property
    def isolation(self) -> Isolation:
        """What is held here, and by what."""
        sets, cgroups = self._all[0], self._all[0].cgroups
        has, own = sets.controllers, self._table.gives_own
        cpus = ("cpuset" if "cpuset" in has else "affinity") if own else ""
        filters = "devices" in has or (cgroups.devices is not None and sets.are_on_v2)
        open_ones = self._nodes.why_open(self._devices)
        return Isolation(
            cpus=cpus,
            cpu_time="quota" if "cpu" in has else "",
            memory="limit" if not cgroups.why_not else "watched" if self._watches_memory else "",
            processes="limit"
            if "pids" in has and self._pids_max
            else "account"
            if self._processes_max
            else "",
            devices="none" if not self._devices else "filter" if filters and not open_ones else "",
            scratch=self._scratch.held_by if self._scratch is not None else "",
            note="; ".join(filter(None, (*cgroups.reasons, open_ones)))[:500],
        )

    def take(
        self,
        key: AttemptKey,
        lane: int,
        grant: Grant,
        keeper_version: int,
        cgroups: Cgroups | None = None,
        owner: tuple[int, int] | None = None,
    ) -> LaunchLimits:
        """The cgroups and CPUs of an attempt; attempts of one lane have the same ones.

        `owner` are the ids that its scratch folder gets. Raises OSError if limits that this node holds cannot be set
        now: it must not run without them.
        """
        held = self._enter(key, lane, cgroups)
        try:
            limits = self._take(key, lane, held, grant, keeper_version)
            return self._with_folder(limits, key, owner, keeper_version)
        except OSError:
            self.release(key)
            raise

    def _take(
        self, key: AttemptKey, lane: int, held: _LaneLimits, grant: Grant, keeper_version: int
    ) -> LaunchLimits:
        """A keeper that cannot give memos back to a later runner gives nothing out that has to be remembered."""
        if keeper_version < MEMOS_SINCE:
            in_use = held.sets.cgroups
            cgroup = self._create(in_use, key, grant.memory_bytes, NO_LIMITS) if grant.memory_bytes else None
            return LaunchLimits(cgroup.folders if cgroup else (), self._of_numa(grant.numa))
        if held.launch is not None and held.grant == grant:
            return held.launch
        share = self._table.take(lane, grant)
        held.cores = 0 if is_whole(grant.cores) else grant.cores
        held.denied = self._nodes.denied(grant.devices)
        if share.is_own:
            self._share_rest()
        folders, is_in_cpuset = self._take_cgroups(key, held, grant, self._limits(share, held))
        cpus = () if is_in_cpuset else share.cpus if share.is_own else self._of_numa(share.numa)
        if self._watches_memory and grant.memory_bytes:
            self._watched[key] = grant.memory_bytes
        number = held.set.number if held.set else None
        memo = LimitMemo(share.cpus, share.is_own, share.numa, number, self._watched.get(key, 0))
        launch = LaunchLimits(folders, cpus, _encode(memo).decode(), self._processes_max)
        if not grant.memory_bytes:  # those have a cgroup of their own
            held.launch, held.grant = launch, grant
        return launch

    def _with_folder(
        self, limits: LaunchLimits, key: AttemptKey, owner: tuple[int, int] | None, keeper_version: int
    ) -> LaunchLimits:
        """With a scratch folder, which the keeper makes unless it has a limit of size."""
        if self._scratch is None:
            return limits
        self._with_scratch.add(key)
        if not self._scratch.are_plain or keeper_version < MEMOS_SINCE:
            return structs.replace(limits, env=self._scratch.make(key, owner))
        env = self._scratch.variables(key)
        return LaunchLimits(
            limits.cgroups, limits.cpus, limits.memo, limits.processes_max, env, env[VARIABLE]
        )

    def _enter(self, key: AttemptKey, lane: int, cgroups: Cgroups | None) -> _LaneLimits:
        if (held := self._lanes.get(lane)) is None:
            held = self._lanes[lane] = _LaneLimits(self._of(cgroups))
        held.keys.add(key)
        self._lane_of[key] = lane
        return held

    def has(self, key: AttemptKey) -> bool:
        """Whether an attempt was given limits and has not given them back."""
        return key in self._lane_of

    def _create(
        self, cgroups: Cgroups, key: AttemptKey, memory_bytes: int, also: TaskLimits
    ) -> Cgroup | None:
        cgroup = cgroups.create(cgroup_name(key), memory_bytes, also=also)
        if cgroup is not None:
            self._memory[key] = cgroups, cgroup
        elif not cgroups.why_not:
            raise OSError(f"no cgroup with a memory limit can be made for {cgroup_name(key)}")
        return cgroup

    def _of_numa(self, numa: int | None) -> tuple[int, ...]:
        """The CPUs of the NUMA node that a task is bound to, if it is: what is shared changes, affinity does not."""
        return self._numa.get(numa, ()) if numa is not None else ()

    def _take_cgroups(
        self, key: AttemptKey, held: _LaneLimits, grant: Grant, limits: TaskLimits
    ) -> tuple[tuple[str, ...], bool]:
        """The folders of an attempt, and whether a cpuset among them holds its CPUs."""
        sets = held.sets
        in_one = sets.are_on_v2 and sets.cgroups.limits_memory_on_v2
        has_cpuset = "cpuset" in sets.controllers
        memory: tuple[str, ...] = ()
        if grant.memory_bytes:
            cgroup = self._create(sets.cgroups, key, grant.memory_bytes, limits if in_one else NO_LIMITS)
            memory = cgroup.folders if cgroup is not None else ()
        if memory and in_one:
            return memory, has_cpuset
        if held.set is None:
            held.set = sets.take(limits)
        if held.set is None:
            if sets.controllers:
                raise OSError(f"no cgroup with limits can be made for {cgroup_name(key)}")
            return memory, False
        return (*memory, *held.set.folders), has_cpuset

    def adopt(
        self, key: AttemptKey, lane: int, text: str, is_started: bool, cgroups: Cgroups | None = None
    ) -> None:
        """An attempt that an earlier runner started, with the memo it left; keepers before version 5 have none."""
        held = self._enter(key, lane, cgroups)
        self._with_scratch.add(key)
        self._memory[key] = held.sets.cgroups, held.sets.cgroups.named(cgroup_name(key))
        if not is_started:
            self._awaited.add(cgroup_name(key))
        try:
            memo = _decode(text) if text else LimitMemo()
        except msgspec.MsgspecError:
            memo = LimitMemo()
        if memo.set is not None and held.set is None:
            held.set = held.sets.adopt(memo.set)
        if self._watches_memory and memo.memory_bytes:
            self._watched[key] = memo.memory_bytes
        self._table.adopt(lane, CpuShare(memo.cpus, memo.is_own, memo.numa))

    def watched_bytes(self, key: AttemptKey) -> int:
        """The memory that an attempt may use, if that is watched; 0: it is held, or there is no limit."""
        return self._watched.get(key, 0)

    def own_folders(self, key: AttemptKey) -> tuple[str, ...]:
        """The cgroups that an attempt has alone."""
        return self._memory[key][1].folders if key in self._memory else ()

    def ended(self, key: AttemptKey, end: ProcessEnd) -> ProcessEnd:
        """Nothing of an attempt is alive: its limits are given back; the end, with what they show of it."""
        end = self._measured(key, end)
        if end.files is not None and not end.files & SCRATCH and self._scratch and self._scratch.are_plain:
            self._with_scratch.discard(key)  # its keeper has taken it for another attempt
        said = self.release(key)
        return structs.replace(end, note="; ".join(filter(None, (end.note, said)))) if said else end

    def release(self, key: AttemptKey) -> str:
        """Nothing of it is alive, or it was never started; what is to be said of its scratch folder.

        What only it used is removed, and with the last attempt of a lane what the lane had.
        """
        if (made := self._memory.pop(key, None)) is not None:
            cgroups, cgroup = made
            cgroups.remove(cgroup)
        self._watched.pop(key, None)
        if (lane := self._lane_of.pop(key, None)) is not None:
            self._lanes[lane].keys.discard(key)
            if not self._lanes[lane].keys:
                self._end_lane(lane)
        if self._scratch is None or key not in self._with_scratch:
            return ""
        self._with_scratch.discard(key)
        return self._scratch.close(key)

    def _end_lane(self, lane: int) -> None:
        held = self._lanes.pop(lane)
        if held.set is not None:
            held.sets.give_back(held.set)
        if self._table.give_back(lane):
            self._share_rest()

    def sweep(self) -> None:
        """Remove the cgroups that earlier runners left, except those of adopted attempts, started or not."""
        for sets in self._all:
            lanes = [held for held in self._lanes.values() if held.sets is sets]
            sets.cgroups.sweep(self._awaited | {held.set.name for held in lanes if held.set is not None})
        self._awaited.clear()
        if self._scratch is not None:
            self._scratch.sweep(self._with_scratch)

    async def watch(self) -> None:
        """Look after what grows by itself, as long as the runner lives."""
        while True:
            await asyncio.sleep(WATCH_S)
            if self._scratch is not None:
                await self._scratch.look()

    async def leave(self) -> None:
        """Nothing runs any more: remove all that was made for attempts."""
        await asyncio.gather(*(sets.cgroups.leave() for sets in self._all))
        if self._scratch is not None:
            await self._scratch.settled()

    def _measured(self, key: AttemptKey, end: ProcessEnd) -> ProcessEnd:
        """The end of an attempt with the most memory it used and its limit."""
        if allowed := self._watched.get(key, 0):
            most = end.usage.memory_peak_bytes if end.usage is not None else end.memory_peak_bytes
            return structs.replace(end, memory_peak_bytes=most, memory_limit_bytes=allowed)
        for folder in self.own_folders(key):
            for name in PEAKS:
                if (peak := number_in(Path(folder) / name)) is not None:
                    limit = next(filter(None, map(number_in, _limit_files(folder))), 0)
                    return structs.replace(end, memory_peak_bytes=peak, memory_limit_bytes=limit)
        return end

    def _limits(self, share: CpuShare, held: _LaneLimits) -> TaskLimits:
        """All but memory. Tasks without cores have no quota, and those with CPUs of their own need none."""
        mems = (share.numa,) if share.numa is not None and share.numa in held.sets.memory_nodes() else ()
        return TaskLimits(0, held.cores, share.cpus, mems, self._pids_max, held.denied)

    def _share_rest(self) -> None:
        """Lanes that share CPUs follow what is shared now."""
        for lane in self._table.refreshed():
            held, share = self._lanes[lane], self._table.lanes[lane]
            held.launch = None
            if held.set is not None:
                held.sets.move(held.set, share.cpus)
            for key in held.keys if held.sets.are_on_v2 else ():
                for folder in self._memory[key][1].folders if key in self._memory else ():
                    with contextlib.suppress(OSError):
                        (Path(folder) / "cpuset.cpus").write_text(as_list(share.cpus))


def isolating(capacity: Capacity, isolation: Isolation) -> Capacity:
    """A node's capacity with what its runner holds tasks to; only a node that lacks nothing has the label for that."""
    labels = {name: value for name, value in capacity.labels.items() if name != ISOLATED[0]}
    if not isolation.lacking:
        labels |= dict([ISOLATED])
    return structs.replace(capacity, isolation=isolation, labels=labels)


def cgroup_name(key: AttemptKey) -> str:
    return "-".join(map(str, key))


def _limit_files(folder: str) -> list[Path]:
    return [Path(folder) / name for name in ("memory.max", "memory.limit_in_bytes")]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(LimitMemo).decode
