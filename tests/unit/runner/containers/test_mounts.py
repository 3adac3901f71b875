"""Which files of the node a container may see."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from phalanx.runner.containers.joining import CannotJoin, check_account
from phalanx.runner.containers.mounts import (
    MountRefused,
    check_inside,
    check_nested,
    check_root,
    check_source,
    why_not,
)
from phalanx.runner.containers.process import Container


def test_only_what_is_below_an_allowed_folder(tmp_path: Path):
    allowed, outside = tmp_path / "data", tmp_path / "data2"
    for folder in (allowed, outside):
        folder.mkdir()
    (allowed / "in").mkdir()
    (allowed / "out").symlink_to(outside)
    (allowed / "inner").symlink_to(allowed / "in")
    for name, real in (("in", allowed / "in"), ("inner", allowed / "in"), (".", allowed)):
        found, fd = check_source(str(allowed / name), [str(allowed)], [])
        os.close(fd)
        assert found == str(real)
    for path in (allowed / "out", outside, tmp_path, allowed / "missing"):
        with pytest.raises(MountRefused):
            check_source(str(path), [str(allowed)], [])


def test_what_is_the_runners_own_is_closed_from_above_and_below():
    for real in ("/", "/var/lib", "/var/lib/phalanx", "/var/lib/phalanx/n1/logs"):
        assert why_not(real, ["/"], ["/var/lib/phalanx"]) == "it holds what is the runner's own"
    assert why_not("/var/lib/other", ["/"], ["/var/lib/phalanx"]) == ""
    assert "none" in why_not("/var", [], [])


def test_what_is_seen_inside_is_compared(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a")
    fd = os.open(tmp_path / "a", os.O_PATH)
    try:
        check_inside(os.getpid(), str(tmp_path / "a"), fd)
        for target in (tmp_path, tmp_path / "link", tmp_path / "none"):
            with pytest.raises(MountRefused):
                check_inside(os.getpid(), str(target), fd)
    finally:
        os.close(fd)


def test_a_folder_that_becomes_a_root_cannot_be_exchanged_after_it_was_looked_at(tmp_path: Path):
    (tmp_path / "r").mkdir()
    (tmp_path / "r/mine").touch()
    spec: Any = {
        "socket": "",
        "kind": "podman",
        "account": None,
        "mounts": [],
        "own_mounts": [],
        "has_network": False,
    }
    spec |= {"rootfs": str(tmp_path / "r"), "allowed": [str(tmp_path)], "closed": []}
    Container(spec)._open_mounts()
    (tmp_path / "r").rename(tmp_path / "old")
    (tmp_path / "r").symlink_to("/etc")
    assert (Path(spec["rootfs"]) / "mine").exists()
    with pytest.raises(MountRefused):
        check_root(os.getpid(), spec["rootfs"])


def test_a_process_with_other_rights_than_its_account_is_not_started():
    own = (os.getuid(), os.getgid(), os.getgroups())
    check_account(os.getpid(), own)
    check_account(os.getpid(), None)
    child = subprocess.Popen(["sleep", "60"], extra_groups=[1, 5], stdin=subprocess.DEVNULL)
    try:
        check_account(child.pid, (own[0], own[1], [5, 1]))
        for other in ((own[0], own[1], [1]), (own[0], own[1] + 1, [1, 5]), (own[0] + 1, own[1], [1, 5])):
            with pytest.raises(CannotJoin):
                check_account(child.pid, other)
    finally:
        child.kill()
        child.wait()


def test_the_place_of_a_mount_inside_another_has_to_be_there(tmp_path: Path):
    """Otherwise the runtime makes it, with the rights of root, in a folder that the account may only read."""
    (tmp_path / "a").mkdir()
    (tmp_path / "link").symlink_to("a")
    fd = os.open(tmp_path, os.O_PATH)
    try:
        check_nested(["/m", "/m/a", "/mm/b", "/other"], [("/m", fd)])
        for target in ("/m/b", "/m/a/b", "/m/link/b"):
            with pytest.raises(MountRefused):
                check_nested([target], [("/m", fd)])
    finally:
        os.close(fd)
