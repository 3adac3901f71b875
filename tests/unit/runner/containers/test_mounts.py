"""Which files of the node a container may see."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from phalanx.runner.containers.mounts import MountRefused, check_inside, check_source, why_not


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
