"""The limits of attempts in invented trees of v1 and v2: what is written where, who gets which CPUs, and what is left.

`tests/e2e/test_isolation.py` has the real ones, on a machine with one memory node.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from phalanx.core.model.resources import ISOLATED, Capacity, Device, Grant, Isolation, NumaNode
from phalanx.core.runner.attempts import ProcessEnd
from phalanx.runner.cgroup_limits import as_list, quota
from phalanx.runner.cgroups import Cgroups
from phalanx.runner.device_nodes import DeviceNodes, find_nodes
from phalanx.runner.limits import AttemptLimits, LaunchLimits, LimitMemo, isolating
from phalanx.runner.scratch import ScratchFolders

MIB = 1 << 20
GIB = 1 << 30
NEW = 5  # a keeper that gives memos back
V2_FILES = {
    "cgroup.procs": "", "cgroup.type": "domain", "cgroup.threads": "", "cgroup.subtree_control": "",
    "cgroup.controllers": "cpuset cpu memory pids", "memory.max": "max", "memory.swap.max": "max",
    "memory.oom.group": "0", "memory.peak": "1000", "cpu.max": "max 100000", "cpuset.cpus": "", "cpuset.mems": "",
    "cpuset.mems.effective": "0-1", "pids.max": "max", "pids.events": "max 0",
}  # fmt: skip
V1_FILES = {
    "cpuset": {"cpuset.cpus": "", "cpuset.mems": ""},
    "pids": {"pids.max": "max", "pids.events": "max 0"},
    "cpu": {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"},
    "devices": {"devices.allow": "", "devices.deny": ""},
    "memory": {"memory.limit_in_bytes": "", "memory.max_usage_in_bytes": "2000"},
}
TWO_NUMA = Capacity(8, GIB, (NumaNode(0, 4, (0, 1, 2, 3)), NumaNode(1, 4, (4, 5, 6, 7))))


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which new folders have the files that a kernel would give them, and go with them."""
    mkdir, rmdir = Path.mkdir, Path.rmdir

    def files_of(folder: Path) -> dict[str, str]:
        top = folder.relative_to(tmp_path).parts[0]
        if top in V1_FILES:
            return V1_FILES[top] | {"cgroup.procs": "", "tasks": ""}
        return V2_FILES if top == "v2" else {}

    def make(self: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        was_there = self.exists()
        mkdir(self, mode, parents, exist_ok)
        if not was_there and self.is_relative_to(tmp_path):
            for name, text in files_of(self).items():
                (self / name).write_text(text)

    def remove(self: Path) -> None:
        if self.is_relative_to(tmp_path):
            for each in [each for each in self.iterdir() if each.is_file()]:
                each.unlink()
        rmdir(self)

    monkeypatch.setattr(Path, "mkdir", make)
    monkeypatch.setattr(Path, "rmdir", remove)
    (tmp_path / "proc" / "self").mkdir(parents=True)
    return tmp_path


def v2(root: Path, isolate: bool = True) -> Cgroups:
    (root / "proc/self/cgroup").write_text("0::/mine\n")
    (root / "v2" / "mine").mkdir(parents=True)
    for folder in (root / "v2", root / "v2/mine"):
        (folder / "cgroup.controllers").write_text(V2_FILES["cgroup.controllers"])
    return Cgroups.find("n1", root / "v2", root / "proc", isolate=isolate)


def v1(root: Path, *controllers: str, devices: bool = False) -> Cgroups:
    text = "".join(f"{at}:{name}:/\n" for at, name in enumerate(controllers, 1))
    (root / "proc/self/cgroup").write_text(text)
    for name in controllers:
        (root / name).mkdir(exist_ok=True)
    if "cpuset" in controllers:
        (root / "cpuset/cpuset.cpus").write_text("0-7")
        (root / "cpuset/cpuset.mems").write_text("0-1")
    return Cgroups.find("n1", root, root / "proc", isolate=True, devices=devices)


def take(limits: AttemptLimits, lane: int, grant: Grant, version: int = NEW) -> LaunchLimits:
    return limits.take((f"j{lane}", 0, 1), lane, grant, version)


def values(taken: LaunchLimits, *names: str) -> list[str]:
    """What the cgroups of an attempt have been told."""
    found = [Path(folder) / name for name in names for folder in taken.cgroups]
    return [path.read_text().strip() for path in found if path.exists()]


def test_on_v1_each_hierarchy_has_its_limit_and_a_numa_target_its_cpus_and_memory(root: Path):
    limits = AttemptLimits(v1(root, "memory", "cpuset", "pids", "cpu"), TWO_NUMA, range(8), 100)
    taken = take(limits, 1, Grant(2, 64 * MIB, numa=1, numa_cores=((1, 2),)))
    assert values(taken, "cpuset.cpus", "cpuset.mems", "pids.max") == ["4-5", "1", "100"]
    assert values(taken, "memory.limit_in_bytes") == [str(64 * MIB)]
    assert [Path(folder).relative_to(root).parts[0] for folder in taken.cgroups] == [
        "memory",
        "cpuset",
        "pids",
    ]
    assert taken.cpus == ()  # a cpuset holds them


def test_on_v2_a_threaded_cgroup_has_all_but_memory_and_one_of_its_own_has_everything(root: Path):
    limits = AttemptLimits(v2(root), TWO_NUMA, range(8), 100)
    taken = take(limits, 1, Grant(2, 0, numa=1, numa_cores=((1, 2),)))
    assert values(taken, "cpuset.cpus", "cpuset.mems", "pids.max", "cgroup.type") == [
        "4-5",
        "1",
        "100",
        "threaded",
    ]
    assert len(taken.cgroups) == 1
    assert limits.tracking() is None
    both = take(limits, 2, Grant(0.5, 64 * MIB))
    assert [Path(folder).name for folder in both.cgroups] == ["j2-0-1"]
    assert values(both, "cpuset.cpus", "cpu.max", "pids.max", "memory.max", "memory.oom.group") == [
        *("0-3,6-7", "5000 10000", "100", str(64 * MIB), "1")
    ]


def test_parts_share_what_is_nobodys_own_and_follow_it(root: Path):
    limits = AttemptLimits(v1(root, "memory", "cpuset", "pids", "cpu"), TWO_NUMA, range(8))
    part = take(limits, 1, Grant(0.5, 0))
    assert values(part, "cpuset.cpus", "cpu.cfs_quota_us", "cpu.cfs_period_us") == ["0-7", "5000", "10000"]
    take(limits, 2, Grant(7, 0))
    assert values(part, "cpuset.cpus") == ["7"]
    limits.release(("j2", 0, 1))
    assert values(part, "cpuset.cpus") == ["0-7"]


def test_parts_with_memory_on_v2_follow_it_too(root: Path):
    limits = AttemptLimits(v2(root), TWO_NUMA, range(8))
    part = take(limits, 1, Grant(0.5, 64 * MIB))
    take(limits, 2, Grant(7, 0))
    assert values(part, "cpuset.cpus") == ["7"]


def test_cgroups_are_used_again_with_the_limits_of_the_next_lane(root: Path):
    limits = AttemptLimits(v1(root, "memory", "cpuset", "pids", "cpu"), TWO_NUMA, range(8))
    first = take(limits, 1, Grant(1, 0))
    again = limits.take(("j1", 1, 1), 1, Grant(1, 0), NEW)
    assert again.cgroups == first.cgroups
    limits.release(("j1", 0, 1))
    assert take(limits, 2, Grant(1, 0)).cgroups != first.cgroups  # the lane has another attempt
    limits.release(("j1", 1, 1))
    other = take(limits, 3, Grant(2, 0))
    assert other.cgroups == first.cgroups
    assert values(other, "cpuset.cpus") == ["0,2"]


def test_devices_are_closed_on_v1_and_opened_again_for_the_next(root: Path):
    capacity = Capacity(8, GIB, devices=(Device(0, "gpu"), Device(1, "gpu")))
    nodes = find_nodes(capacity, "0=/dev/full;1=/dev/zero")
    cgroups = v1(root, "memory", "cpuset", "pids", "cpu", "devices", devices=True)
    limits = AttemptLimits(cgroups, capacity, range(8), nodes=nodes)
    taken = take(limits, 1, Grant(1, 0, devices=(0,)))
    assert values(taken, "devices.allow", "devices.deny") == ["a", "c 1:5 rwm"]
    assert limits.isolation.lacking == []
    assert limits.isolation.devices == "filter"


def test_what_a_later_runner_has_to_know_is_in_the_memo(root: Path):
    cgroups = v1(root, "memory", "cpuset", "pids", "cpu")
    former = AttemptLimits(cgroups, TWO_NUMA, range(8))
    own, part = take(former, 1, Grant(2, 0)), take(former, 2, Grant(0.5, 0))
    later = AttemptLimits(cgroups, TWO_NUMA, range(8))
    later.adopt(("j1", 0, 1), 1, own.memo, is_started=True)
    later.adopt(("j2", 0, 1), 2, part.memo, is_started=False)
    later.sweep()
    assert all(Path(folder).is_dir() for folder in (*own.cgroups, *part.cgroups))
    new = take(later, 3, Grant(1, 0))
    assert values(new, "cpuset.cpus") == ["2"]
    assert values(part, "cpuset.cpus") == ["3-7"]
    assert set(new.cgroups).isdisjoint((*own.cgroups, *part.cgroups))
    later.release(("j1", 0, 1))
    assert not any(Path(folder).exists() for folder in own.cgroups)  # what it has been told is not known
    assert values(part, "cpuset.cpus") == ["0-1,3-7"]


def test_the_next_attempt_of_an_adopted_lane_is_in_the_same_cgroups(root: Path):
    cgroups = v1(root, "memory", "cpuset", "pids", "cpu")
    first = take(AttemptLimits(cgroups, TWO_NUMA, range(8)), 1, Grant(1, 0))
    later = AttemptLimits(cgroups, TWO_NUMA, range(8))
    later.adopt(("j1", 0, 1), 1, first.memo, is_started=True)
    following = later.take(("j1", 1, 1), 1, Grant(1, 0), NEW)
    assert sorted(following.cgroups) == sorted(first.cgroups)
    assert following.memo == first.memo


@pytest.mark.parametrize(("file", "memory"), [("pids/phalanx-n1", 0), ("memory/phalanx-n1", 64 * MIB)])
def test_what_cannot_have_the_limits_that_the_node_holds_is_not_started(root: Path, file: str, memory: int):
    limits = AttemptLimits(v1(root, "memory", "cpuset", "pids", "cpu"), TWO_NUMA, range(8))
    (root / file).rename(root / f"{file}-gone")
    with pytest.raises(OSError, match="no cgroup"):
        take(limits, 1, Grant(8, memory))
    (root / f"{file}-gone").rename(root / file)
    assert len(take(limits, 2, Grant(8, memory)).cgroups) == 2 + bool(
        memory
    )  # nothing is held by the first one


def test_what_belongs_to_nobody_is_swept(root: Path):
    cgroups = v1(root, "memory", "cpuset", "pids", "cpu")
    left = take(AttemptLimits(cgroups, TWO_NUMA, range(8)), 1, Grant(1, 64 * MIB))
    later = AttemptLimits(cgroups, TWO_NUMA, range(8))
    later.sweep()
    assert not any(Path(folder).exists() for folder in left.cgroups)


@pytest.mark.parametrize("text", ["", "{", '{"cpus": "x"}', "[]"])
def test_a_memo_that_cannot_be_read_is_none(root: Path, text: str):
    limits = AttemptLimits(v1(root, "memory", "cpuset", "pids", "cpu"), TWO_NUMA, range(8))
    limits.adopt(("j", 0, 1), 1, text, is_started=True)
    assert take(limits, 2, Grant(8, 0)).cgroups


def test_an_older_keeper_gives_out_nothing_that_has_to_be_remembered(root: Path):
    limits = AttemptLimits(v1(root, "memory", "cpuset", "pids", "cpu"), TWO_NUMA, range(8))
    taken = take(limits, 1, Grant(1, 64 * MIB, numa=1), version=4)
    assert (taken.memo, taken.cpus) == ("", (4, 5, 6, 7))
    assert [Path(folder).name for folder in taken.cgroups] == ["j1-0-1"]


def test_without_rights_cpus_are_given_by_affinity():
    limits = AttemptLimits(Cgroups((), "not allowed", False), TWO_NUMA, range(8))
    assert take(limits, 1, Grant(2, 0, numa=1, numa_cores=((1, 2),))).cpus == (4, 5)
    assert take(limits, 2, Grant(0.5, 0)).cpus == ()
    isolation = limits.isolation
    assert isolation.cpus == "affinity"
    assert isolation.lacking == ["CPUs", "CPU time", "memory", "number of processes"]
    assert ISOLATED[0] not in isolating(TWO_NUMA, isolation).labels


def test_a_node_that_lacks_nothing_has_the_label_and_no_other_can_take_it(root: Path):
    limits = AttemptLimits(v1(root, "memory", "cpuset", "pids", "cpu"), TWO_NUMA, range(8))
    assert limits.isolation.lacking == []
    assert isolating(TWO_NUMA, limits.isolation).labels == dict([ISOLATED])
    forged = msgspec.structs.replace(TWO_NUMA, labels=dict([ISOLATED]))
    assert isolating(forged, Isolation()).labels == {}


def test_devices_that_cannot_be_closed_are_said():
    capacity = Capacity(8, GIB, devices=(Device(0, "gpu"),))
    assert AttemptLimits(Cgroups((), "", False), capacity, nodes=DeviceNodes({})).isolation.devices == ""


def test_a_node_with_a_device_whose_nodes_are_not_all_known_does_not_isolate(root: Path, tmp_path: Path):
    capacity = Capacity(8, GIB, devices=(Device(0, "gpu"), Device(1, "gpu")))
    cgroups = v1(root, "memory", "cpuset", "pids", "cpu", "devices", devices=True)
    nodes = find_nodes(capacity, f"0=/dev/full;1={tmp_path}/gone")
    limits = AttemptLimits(cgroups, capacity, range(8), nodes=nodes)
    assert values(take(limits, 1, Grant(1, 0)), "devices.deny") == ["c 1:7 rwm"]
    assert limits.isolation.lacking == ["devices"]
    assert limits.isolation.note == f"no device node at {tmp_path}/gone"
    assert ISOLATED[0] not in isolating(capacity, limits.isolation).labels


def test_the_end_has_the_limit_and_the_peak(root: Path):
    limits = AttemptLimits(v1(root, "memory", "cpuset", "pids", "cpu"), TWO_NUMA, range(8))
    take(limits, 1, Grant(1, 64 * MIB))
    end = limits.ended(("j1", 0, 1), ProcessEnd(None, 9, True, None, 1.0, 2.0))
    assert (end.memory_limit_bytes, end.memory_peak_bytes) == (64 * MIB, 2000)
    assert limits.ended(("j1", 0, 1), ProcessEnd(0, None, False, None, 1.0, 2.0)).memory_limit_bytes == 0


def test_a_scratch_folder_comes_with_the_limits_and_goes_with_them(root: Path):
    async def story() -> None:
        scratch = ScratchFolders(root / "scratch")
        limits = AttemptLimits(Cgroups((), "not allowed", False), TWO_NUMA, scratch=scratch)
        taken = take(limits, 1, Grant(1, 0))
        folder = Path(taken.env["PHALANX_SCRATCH_DIR"])
        assert taken.scratch == str(folder) and not folder.exists(), "its keeper makes it"
        folder.mkdir()
        (folder / "file").write_text("x")
        limits.release(("j1", 0, 1))
        await scratch.settled()
        assert not folder.exists()

    asyncio.run(story())


def test_lists_of_cpus_are_written_as_the_kernel_reads_them():
    assert as_list((3, 1, 2, 8)) == "1-3,8"
    assert as_list(()) == ""


@pytest.mark.parametrize(
    ("cores", "expected"), [(0.5, (5000, 10_000)), (0.05, (5000, 100_000)), (0.001, (1000, 100_000))]
)
def test_a_quota_is_of_a_short_period_unless_the_share_is_too_small(cores: float, expected: tuple[int, int]):
    assert quota(cores) == expected


def test_a_memo_is_small():
    assert len(msgspec.json.encode(LimitMemo(tuple(range(128)), True, 1, 7))) < 1000
