"""Cgroups with limits that are used again: one set of folders for each lane, in every hierarchy that has a limit of it.

Making and removing a folder costs ten times as much as entering and leaving it, so a set whose lane has ended waits
for the next lane, and only those limits are written that differ. Memory is not among them: a task that has a limit has
a cgroup of its own for that (`cgroups.py`), because what it used at most is read from there. On v2 the sets are
threaded cgroups, which the keeper can enter without waiting (decision 40).
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from msgspec import structs

from phalanx.runner.cgroup_limits import NO_LIMITS, TaskLimits, as_list, write_limits
from phalanx.runner.cgroup_tree import Hierarchy, words_of
from phalanx.runner.cgroups import SET, Cgroups
from phalanx.runner.devices import parse_cpulist

FREE_MAX = 256  # sets that wait to be used again
TRIES_MAX = 1000  # names that may be taken by cgroups in which something still runs


class LimitSet:
    """One set: its folders, by hierarchy, and what each has been told."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.limits = NO_LIMITS
        self.folders: tuple[str, ...] = ()  # those that an attempt enters
        self.written: dict[Path, TaskLimits] = {}
        self.is_adopted = False  # made by an earlier runner: what it has been told is not known

    @property
    def name(self) -> str:
        return f"{SET}{self.number}"


class LimitSets:
    """The sets of one keeper: those in use, and those that wait."""

    def __init__(self, cgroups: Cgroups) -> None:
        self.cgroups = cgroups
        self._free: dict[TaskLimits, list[LimitSet]] = {}
        self._next = 0

    @property
    def controllers(self) -> frozenset[str]:
        """What these sets can limit."""
        if not self.cgroups.isolates:
            return frozenset()
        return frozenset(
            name for each in self.cgroups.hierarchies for name in _controllers(each) if name != "memory"
        )

    @property
    def are_on_v2(self) -> bool:
        """Whether v2 has the limits: then a set is the only cgroup of its attempts there, and they need no slot."""
        return any(each.is_v2 and self._is_used(each) for each in self.cgroups.hierarchies)

    def take(self, limits: TaskLimits) -> LimitSet | None:
        """A set with these limits; None where that is impossible."""
        if not self.cgroups.isolates:
            return None
        same = self._free.get(limits)
        other = next((each for each in self._free.values() if each), None) if not same else None
        found = same.pop() if same else other.pop() if other else self._new()
        if found is not None and self.change(found, limits):
            return found
        return None

    def change(self, found: LimitSet, limits: TaskLimits) -> bool:
        """Give a set other limits; False if that failed, and then it is not used any more."""
        if found.folders and found.limits == limits:
            return True
        needed = [each for each in self.cgroups.hierarchies if self._is_needed(each, limits)]
        try:
            found.folders = tuple(str(self._write(each, found, limits)) for each in needed)
        except OSError:
            self._remove(found)
            return False
        found.limits = limits
        return True

    def move(self, found: LimitSet, cpus: tuple[int, ...]) -> None:
        """Give a set other CPUs, and what runs in it with it; skipped where it is gone."""
        for folder, written in found.written.items():
            with contextlib.suppress(OSError):
                if (folder / "cpuset.cpus").exists():
                    (folder / "cpuset.cpus").write_text(as_list(cpus))
                    found.written[folder] = structs.replace(written, cpus=cpus)
        found.limits = structs.replace(found.limits, cpus=cpus)

    def give_back(self, found: LimitSet) -> None:
        """Its lane has ended, and nothing is inside."""
        waiting = sum(map(len, self._free.values()))
        if found.is_adopted or waiting >= FREE_MAX:
            self._remove(found)
        else:
            self._free.setdefault(found.limits, []).append(found)

    def adopt(self, number: int) -> LimitSet:
        """A set that attempts of an earlier runner are in."""
        found = LimitSet(number)
        found.is_adopted = True
        for hierarchy in self.cgroups.hierarchies:
            folder = _parent(hierarchy) / found.name
            if folder.is_dir():
                found.written[folder] = NO_LIMITS
        self._next = max(self._next, number + 1)
        return found

    def memory_nodes(self) -> list[int]:
        """The memory nodes that tasks can be bound to."""
        for hierarchy in self.cgroups.hierarchies:
            if "cpuset" in _controllers(hierarchy):
                for name in ("cpuset.mems.effective", "cpuset.mems"):  # v2, v1
                    if words := words_of(_parent(hierarchy) / name):
                        return parse_cpulist(words[0])
        return []

    def _is_used(self, hierarchy: Hierarchy) -> bool:
        if hierarchy.is_v2 and self.cgroups.devices is not None:
            return True
        return bool(_controllers(hierarchy) - {"memory"})

    def _is_needed(self, hierarchy: Hierarchy, limits: TaskLimits) -> bool:
        if hierarchy.is_v2:
            return self._is_used(hierarchy)
        wanted = {"cpuset"} if limits.cpus or limits.mems else set()
        wanted |= {"cpu"} if limits.cores else set()
        wanted |= {"pids"} if limits.pids else set()
        wanted |= {"devices"} if limits.denied else set()
        return bool(wanted & hierarchy.controllers)

    def _write(self, hierarchy: Hierarchy, found: LimitSet, limits: TaskLimits) -> Path:
        folder = _parent(hierarchy) / found.name
        if folder not in found.written:
            folder.mkdir()
            found.written[folder] = NO_LIMITS
            if hierarchy.threaded is not None:
                (folder / "cgroup.type").write_text("threaded")
        former = found.written[folder]
        write_limits(folder, _controllers(hierarchy), hierarchy.is_v2, limits, former, self.cgroups.devices)
        found.written[folder] = limits
        return folder

    def _new(self) -> LimitSet | None:
        """A number whose folders exist nowhere: in one that exists something may still run."""
        for _ in range(TRIES_MAX):
            found = LimitSet(self._next)
            self._next += 1
            if not any((_parent(each) / found.name).exists() for each in self.cgroups.hierarchies):
                return found
        return None

    def _remove(self, found: LimitSet) -> None:
        for folder in found.written:
            with contextlib.suppress(OSError):
                folder.rmdir()


def _parent(hierarchy: Hierarchy) -> Path:
    return hierarchy.threaded or hierarchy.base


def _controllers(hierarchy: Hierarchy) -> frozenset[str]:
    return hierarchy.on_threads if hierarchy.threaded is not None else hierarchy.controllers
