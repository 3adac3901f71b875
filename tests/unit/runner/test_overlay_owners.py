"""Which owner the tasks in a node's own network have: by cgroup, which a later runner knows again, or by account."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from phalanx.runner.keeper.cgroup import THREADED
from phalanx.runner.overlay_owners import ATTRIBUTE, BY_ACCOUNT, BY_CGROUP, NodeTasks, TaskOwners

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may write attributes that tasks cannot")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """The folder of a node, on a machine with v1 and v2."""
    folder = tmp_path / "unified" / "phalanx-n1"
    (folder / THREADED / "phalanx-ada").mkdir(parents=True)
    (folder / "j-0-1").mkdir()
    return folder


def owners(base: Path) -> TaskOwners:
    return TaskOwners(BY_CGROUP, [str(base)], root=base.parents[1])


@as_root
def test_cgroups_are_told_with_their_level_and_their_path_as_nft_wants_it(base: Path):
    known = owners(base)
    assert known.assign(f"{base}/{THREADED}/phalanx-ada", "ada")
    assert not known.assign(f"{base}/{THREADED}/phalanx-ada", "ada"), "that is known"
    assert known.assign(f"{base}/j-0-1", "eve")
    assert known.known(["ada", "eve"]).cgroups == {
        2: {"unified/phalanx-n1/j-0-1": "eve"},
        3: {f"unified/phalanx-n1/{THREADED}/phalanx-ada": "ada"},
    }
    assert known.known(["bob"]) == NodeTasks({}, {}), "those without addresses need not be known"


@as_root
def test_a_later_runner_knows_them_again_and_forgets_what_is_gone(base: Path):
    owners(base).assign(f"{base}/j-0-1", "eve")
    later = owners(base)
    later.scan()
    assert later.known(["eve"]).cgroups == {2: {"unified/phalanx-n1/j-0-1": "eve"}}
    (base / "j-0-1").rmdir()
    assert later.known(["eve"]).cgroups == {}


@as_root
def test_a_cgroup_that_is_used_again_has_its_new_owner(base: Path):
    known = owners(base)
    known.assign(f"{base}/j-0-1", "eve")
    assert known.assign(f"{base}/j-0-1", "ada")
    assert known.known(["eve"]).cgroups == {}
    assert os.getxattr(base / "j-0-1", ATTRIBUTE) == b"ada"


def test_folders_outside_the_nodes_own_are_never_assigned(base: Path):
    assert not owners(base).assign("/sys/fs/cgroup/memory/phalanx-n1/j-0-1", "ada")


def test_an_account_that_two_users_share_tells_nobody_apart():
    uids = {"ada": 1000, "bob": 2000, "eve": 2000}
    known = TaskOwners(BY_ACCOUNT, uid_of=uids.get).known(["ada", "bob", "eve", "zoe"])
    assert known == NodeTasks({}, {1000: "ada"})


def test_where_nothing_tells_them_apart_nobody_is_known(base: Path):
    known = TaskOwners("", [str(base)])
    assert not known.assign(f"{base}/j-0-1", "ada")
    assert known.known(["ada"]) == NodeTasks({}, {})
