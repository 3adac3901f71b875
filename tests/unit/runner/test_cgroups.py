"""Cgroups in invented trees of v1 and v2; `tests/e2e/test_keeper_limits.py` has the real ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from phalanx.core.model.amounts import MEMORY_BYTES_MIN
from phalanx.runner.cgroup_tree import RUNNER
from phalanx.runner.cgroups import Cgroups
from phalanx.runner.keeper.cgroup import attempts_in, is_of_a_node, node_folder, oom_kills

MIB = 1 << 20


def a_tree(root: Path, files: dict[str, str]) -> Path:
    """The files a kernel would make. Existing folders take the place of those it makes on mkdir."""
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def a_v2(root: Path, controllers: str = "cpu memory", procs: str = "") -> Path:
    base = "mine/phalanx-n1"
    tree = {"proc/self/cgroup": "0::/mine\n", "cgroup.controllers": "cpu memory"}
    for folder in ("mine", base):
        tree |= {f"{folder}/cgroup.controllers": controllers, f"{folder}/cgroup.subtree_control": ""}
    tree |= {"mine/cgroup.procs": procs, f"{base}/cgroup.procs": "", f"{base}/keeper/cgroup.procs": ""}
    limits = ("memory.max", "memory.swap.max", "memory.oom.group", "cpu.max", "memory.events")
    tree |= {f"{base}/{leaf}/{limit}": "" for leaf in ("keeper", "a") for limit in limits}
    return a_tree(root, tree)


def find(root: Path, limit_cpu: bool = False) -> Cgroups:
    return Cgroups.find("n1", root, root / "proc", limit_cpu)


def test_v2_hands_memory_down_and_limits_it(tmp_path: Path):
    cgroups = find(a_v2(tmp_path))
    assert cgroups.why_not is None
    assert (tmp_path / "mine/cgroup.subtree_control").read_text() == "+memory"
    cgroup = cgroups.create("a", 64 * MIB, cores=2)
    assert cgroup is not None
    assert cgroup.folders == (str(tmp_path / "mine/phalanx-n1/a"),)
    folder = Path(cgroup.folders[0])
    assert (folder / "memory.max").read_text() == str(64 * MIB)
    assert (folder / "memory.swap.max").read_text() == "0"
    assert (folder / "memory.oom.group").read_text() == "1"
    assert (folder / "cpu.max").read_text() == ""


@pytest.mark.parametrize(
    ("cores", "limit"),
    [(0.5, "5000 10000"), (1.25, "12500 10000"), (0.05, "5000 100000"), (0.001, "1000 100000")],
)
def test_a_part_of_a_core_is_a_part_of_the_period_but_no_less_than_the_kernel_takes(
    tmp_path: Path, cores: float, limit: str
):
    assert find(a_v2(tmp_path), limit_cpu=True).create("a", 0, cores=cores) is not None
    assert (tmp_path / "mine/phalanx-n1/a/cpu.max").read_text() == limit


def test_a_cpu_limit_is_set_only_when_asked_for(tmp_path: Path):
    cgroups = find(a_v2(tmp_path), limit_cpu=True)
    assert (tmp_path / "mine/cgroup.subtree_control").read_text() == "+memory +cpu"
    assert cgroups.create("a", 0, cores=2) is not None
    assert (tmp_path / "mine/phalanx-n1/a/cpu.max").read_text() == "20000 10000"
    assert (tmp_path / "mine/phalanx-n1/a/memory.max").read_text() == ""


def test_v1_limits_memory_and_v2_beside_it_only_tracks(tmp_path: Path):
    tree = {"proc/self/cgroup": "4:memory:/mine\n1:cpu,cpuacct:/\n0::/\n", "memory/cgroup.procs": ""}
    tree |= {"unified/cgroup.controllers": "hugetlb", "unified/cgroup.subtree_control": ""}
    for base in ("memory/mine", "unified"):
        tree |= {f"{base}/cgroup.procs": "", f"{base}/phalanx-n1/keeper/cgroup.procs": ""}
    tree |= {f"memory/mine/phalanx-n1/{leaf}/memory.limit_in_bytes": "" for leaf in ("keeper", "a")}
    unified = "unified/phalanx-n1"
    tree |= {f"{unified}/cgroup.controllers": "", f"{unified}/cgroup.subtree_control": ""}
    cgroups = find(a_tree(tmp_path, tree))
    cgroup = cgroups.create("a", 64 * MIB)
    assert cgroup is not None
    assert [Path(folder).relative_to(tmp_path) for folder in cgroup.folders] == [
        Path("memory/mine/phalanx-n1/a")
    ]
    assert (tmp_path / "memory/mine/phalanx-n1/a/memory.limit_in_bytes").read_text() == str(64 * MIB)


def test_a_limit_too_small_for_the_keeper_to_spawn_in_is_raised(tmp_path: Path):
    cgroups = find(a_v2(tmp_path))
    assert cgroups.create("a", 1) is not None
    assert (tmp_path / "mine/phalanx-n1/a/memory.max").read_text() == str(MEMORY_BYTES_MIN)


@pytest.mark.parametrize("name", ["..", "a/b", "", "/etc", "a\0", "-a"])
def test_a_name_that_is_none_makes_nothing(tmp_path: Path, name: str):
    assert find(a_v2(tmp_path)).create(name, MIB) is None


def test_oom_kills_are_read_from_the_cgroup(tmp_path: Path):
    cgroups = find(a_v2(tmp_path))
    events = tmp_path / "mine/phalanx-n1/a/memory.events"
    events.write_text("low 0\noom 3\noom_kill 2\noom_group_kill 1\n")
    assert oom_kills(list(cgroups.named("a").folders)) == 2


def test_no_cgroups_at_all_is_said_once_and_never_raised(tmp_path: Path):
    cgroups = find(tmp_path)
    assert cgroups.why_not == f"no memory controller is mounted under {tmp_path}"
    assert cgroups.create("a", MIB) is None
    assert cgroups.create("a", 0) is None
    cgroups.sweep()
    cgroups.close()


def test_v2_without_memory_tracks_but_does_not_pretend_to_limit(tmp_path: Path):
    tree = a_v2(tmp_path, controllers="cpu")
    for leaf in ("keeper", "a"):
        (tree / f"mine/phalanx-n1/{leaf}/memory.max").unlink()
    cgroups = find(tree)
    assert cgroups.why_not is not None
    assert cgroups.create("a", MIB) is None
    assert cgroups.create("a", 0) is not None


def test_what_may_not_be_written_is_why_not(tmp_path: Path):
    tree = a_v2(tmp_path)
    (tree / "mine/phalanx-n1/keeper/cgroup.procs").unlink()
    cgroups = find(tree)
    assert cgroups.why_not is not None
    assert "cgroup.procs may not be written" in cgroups.why_not


def a_busy_folder(monkeypatch: pytest.MonkeyPatch, control: Path, is_busy: Callable[[], bool]) -> None:
    """v2 refuses to enable controllers while processes are inside."""
    write_text = Path.write_text

    def write(path: Path, text: str) -> int:
        if path == control and is_busy():
            raise OSError(16, "Device or resource busy")
        return write_text(path, text)

    monkeypatch.setattr(Path, "write_text", write)


def test_a_runner_that_shares_its_cgroup_is_told_how_to_get_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    tree = a_v2(tmp_path, procs=f"{os.getpid()}\n1\n")
    a_busy_folder(monkeypatch, tree / "mine/cgroup.subtree_control", lambda: True)
    why_not = find(tree).why_not
    assert why_not is not None
    assert "Delegate=yes" in why_not


def test_a_runner_alone_in_its_cgroup_steps_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    tree = a_v2(tmp_path, procs=f"{os.getpid()}\n")
    control = tree / "mine/cgroup.subtree_control"
    a_busy_folder(monkeypatch, control, lambda: not (tree / "mine" / RUNNER).exists())
    assert find(tree).why_not is None
    assert (tree / "mine" / RUNNER / "cgroup.procs").read_text() == "0"


def test_a_runner_that_has_stepped_aside_keeps_its_place(tmp_path: Path):
    tree = a_v2(tmp_path)
    a_tree(tree, {"proc/self/cgroup": f"0::/mine/{RUNNER}\n", f"mine/{RUNNER}/cgroup.procs": ""})
    cgroup = find(tree).create("a", 64 * MIB)
    assert cgroup is not None
    assert cgroup.folders == (str(tree / "mine/phalanx-n1/a"),)


def test_the_keeper_makes_its_cgroups_where_they_can_be_killed_at_once(tmp_path: Path):
    assert find(a_v2(tmp_path)).tracking == str(tmp_path / "mine/phalanx-n1")
    assert Cgroups.find("n1", tmp_path, tmp_path / "proc", track=False).tracking is None
    assert Cgroups((), "none", False).tracking is None


def test_a_sweep_leaves_the_keepers_own_cgroups_and_a_close_leaves_none(tmp_path: Path):
    cgroups = find(a_v2(tmp_path))
    base = tmp_path / "mine/phalanx-n1"
    for name in ("slot-0/made-by-a-task", "slot-0-1", "old"):
        (base / name).mkdir(parents=True)
    cgroups.sweep()
    assert {each.name for each in base.iterdir() if each.is_dir()} >= {"slot-0", "keeper"}
    assert not (base / "slot-0-1").exists()
    assert not (base / "old").exists()
    for file in [each for each in base.rglob("*") if each.is_file()]:
        file.unlink()  # a kernel's files go with their folder
    assert cgroups.close()
    assert not base.exists()


def test_only_a_folder_beside_a_keepers_leaf_is_taken_for_an_attempts(tmp_path: Path):
    base = tmp_path / "phalanx-n1"
    (base / "keeper").mkdir(parents=True)
    (tmp_path / "other" / "keeper").mkdir(parents=True)
    assert is_of_a_node(f"{base}/slot-0")
    assert is_of_a_node(f"{base}/01abc-0-1")
    for folder in ("keeper", "", "..", "../other"):
        assert not is_of_a_node(f"{base}/{folder}")
    for path in ("/sys/fs/cgroup", "/", "", "slot-0", f"{tmp_path}/other/slot-0", f"{base}/slot-0/deeper"):
        assert not is_of_a_node(path)


def test_all_in_a_nodes_folder_is_its_attempts_but_the_keepers_leaf(tmp_path: Path):
    base, other = tmp_path / "phalanx-n1", tmp_path / "other"
    for folder in (
        base / "keeper" / "in",
        base / "slot-0" / "of a task",
        base / "01abc-0-1",
        other / "slot-0",
    ):
        folder.mkdir(parents=True)
    names = ("slot-0", "slot-0/of a task", "01abc-0-1")
    assert attempts_in([str(base), str(other), f"{tmp_path}/gone"]) == {f"{base}/{name}" for name in names}


def test_the_folders_of_owners_have_a_leaf_of_the_keeper_too(tmp_path: Path):
    base = tmp_path / "phalanx-n1" / "phalanx-slots"
    inside = ("phalanx-ada/slot-0/keeper", "phalanx-ada/slot-1", "slot-2")
    for name in ("keeper", "phalanx-ada/keeper", *inside):
        (base / name).mkdir(parents=True)
    (tmp_path / "phalanx-n1" / "keeper").mkdir()
    found = attempts_in([str(tmp_path / "phalanx-n1")])
    assert found == {f"{base}/{name}" for name in (*inside, "phalanx-ada", "phalanx-ada/slot-0")}
    assert is_of_a_node(f"{base}/phalanx-ada/slot-1")
    assert node_folder(f"{base}/phalanx-ada") == str(tmp_path / "phalanx-n1")
