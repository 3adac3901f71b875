"""Folders that tasks have filled are removed, whatever is in them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from phalanx.runner.trees import remove_tree
from tests.support.as_user import run_as_user
from tests.support.deep_folders import make_deep


def test_folders_of_any_depth_go(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    (folder / "beside" / "it").mkdir(parents=True)
    make_deep(folder)
    remove_tree(folder)
    assert [*tmp_path.iterdir()] == []


def test_what_is_no_folder_goes_and_what_links_lead_to_stays(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    (kept / "inside").mkdir(parents=True)
    folder = tmp_path / "f"
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "link").symlink_to(kept)
    (folder / "dangling").symlink_to("nowhere")
    os.mkfifo(folder / "fifo")
    (folder / b"\xff\n".decode(errors="surrogateescape")).touch()
    remove_tree(folder)
    assert [each.name for each in tmp_path.iterdir()] == ["kept"]
    assert (kept / "inside").is_dir()


def test_a_link_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    with pytest.raises(OSError, match="link"):
        remove_tree(tmp_path / "link")
    assert (tmp_path / "kept").is_dir()


@pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("chattr") is None, reason="only root can make a file that stays"
)
def test_what_cannot_be_removed_is_told_and_the_rest_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    (folder / "a").mkdir(parents=True)
    stays = folder / "a" / "stays"
    stays.touch()
    (folder / "goes").touch()
    subprocess.run(["chattr", "+i", stays], check=True)
    try:
        with pytest.raises(PermissionError):
            remove_tree(folder)
        assert not (folder / "goes").exists()
    finally:
        for each in folder.rglob("stays"):
            subprocess.run(["chattr", "-i", each], check=True)


def test_folders_that_may_not_be_entered_or_changed_go_too(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    for name, mode in (("read-only", 0o555), ("closed", 0o000), ("searchable", 0o111)):
        inner = folder / name / "inner"
        inner.mkdir(parents=True)
        (inner / "file").touch(0o400)
        inner.chmod(mode)
        inner.parent.chmod(mode)
    folder.chmod(0o555)
    run_as_user("from phalanx.runner.trees import remove_tree; remove_tree(sys.argv[1])", folder)
    assert [*tmp_path.iterdir()] == []
