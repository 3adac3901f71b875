"""Scratch folders: made, kept to their size or watched, and removed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from pathlib import Path

import pytest

from phalanx.runner import scratch
from phalanx.runner.scratch import ScratchFolders, mounted_below
from phalanx.runner.trees import size_of
from tests.support.deep_folders import make_deep

MIB = 1 << 20
KEY = ("01abc", 0, 1)


def made(folders: ScratchFolders, key: tuple[str, int, int] = KEY) -> Path:
    return Path(folders.make(key)[scratch.VARIABLE])


def play(story: Coroutine[None, None, None]) -> None:
    asyncio.run(story)


def test_a_folder_is_its_attempts_alone_and_gone_at_the_end(tmp_path: Path):
    async def story() -> None:
        folders = ScratchFolders(tmp_path / "s")
        folder = made(folders)
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "a" / "b").mkdir(parents=True)
        (folder / "link").symlink_to(tmp_path)
        assert folders.close(KEY) == ""
        await folders.settled()
        assert not folder.exists()
        assert tmp_path.is_dir()

    play(story())


def test_an_empty_folder_is_removed_and_one_with_other_rights_too(tmp_path: Path):
    async def story() -> None:
        folders = ScratchFolders(tmp_path / "s")
        made(folders)
        folders.close(KEY)
        other = made(folders, ("01abd", 0, 1))
        assert [*(tmp_path / "s").iterdir()] == [other]
        other.chmod(0o777)
        folders.close(("01abd", 0, 1))
        await folders.settled()
        assert [*(tmp_path / "s").iterdir()] == []

    play(story())


def test_however_deep_folders_are_the_next_runner_starts_and_removes_them(tmp_path: Path):
    folders = ScratchFolders(tmp_path / "s")
    make_deep(made(folders))
    folders.sweep(())
    assert [*(tmp_path / "s").iterdir()] == []


def test_tmpdir_is_set_only_where_sockets_fit(tmp_path: Path):
    short = ScratchFolders(Path(f"/tmp/s-{os.getpid()}"))
    try:
        assert short.make(KEY)["TMPDIR"].startswith("/tmp/")
    finally:
        scratch.remove(Path(f"/tmp/s-{os.getpid()}"))
    assert set(ScratchFolders(tmp_path / ("s" * 60)).make(KEY)) == {scratch.VARIABLE}


def test_what_is_only_watched_is_said_when_it_is_too_large(tmp_path: Path):
    async def story() -> None:
        folders = ScratchFolders(tmp_path / "s", 64 << 10, may_mount=False)
        assert folders.held_by == "watched"
        folder = made(folders)
        (folder / "large").write_bytes(bytes(MIB))
        await folders.look()
        (folder / "large").unlink()
        assert "its scratch folder had 1 MiB, more than the 64 KiB" in folders.close(KEY)
        made(folders, ("small", 0, 1))
        assert folders.close(("small", 0, 1)) == ""

    play(story())


def test_a_sweep_removes_what_belongs_to_no_attempt(tmp_path: Path):
    folders = ScratchFolders(tmp_path / "s")
    kept, old = made(folders), made(folders, ("old", 0, 1))
    (old / "file").write_text("x")
    (tmp_path / "s" / "planted").symlink_to(tmp_path)
    folders.sweep([KEY])
    assert [*(tmp_path / "s").iterdir()] == [kept]
    assert tmp_path.is_dir()


@pytest.mark.skipif(os.getuid() != 0, reason="only root may mount")
def test_with_a_size_it_is_a_tmpfs_that_cannot_grow_and_goes_with_the_attempt(tmp_path: Path):
    async def story() -> None:
        folders = ScratchFolders(tmp_path / "with blank", MIB)
        if folders.held_by != "tmpfs":
            pytest.skip("no tmpfs can be mounted here")
        folder, old = made(folders), made(folders, ("old", 0, 1))
        assert made(folders) == folder  # once more, by a new keeper: it stays as it is
        assert len(mounted_below(tmp_path)) == 2
        with pytest.raises(OSError, match="No space left"):
            (folder / "large").write_bytes(bytes(2 * MIB))
        folders.sweep([KEY])
        assert mounted_below(tmp_path) == [str(folder)]
        assert not old.exists()
        folders.close(KEY)
        await folders.settled()
        assert not mounted_below(tmp_path)
        assert not folder.exists()

    try:
        play(story())
    finally:
        scratch.unmount(tmp_path)


def test_mounts_are_read_as_the_kernel_writes_them(tmp_path: Path):
    lines = [
        "1 0 0:1 / /a\\040b/c rw - tmpfs x rw",
        "2 0 0:1 / /a rw - tmpfs x rw",
        "3 0 0:1 / /ab rw - tmpfs x rw",
    ]
    mounts = tmp_path / "mountinfo"
    mounts.write_text("\n".join(lines))
    assert mounted_below(Path("/a b"), mounts) == ["/a b/c"]
    assert mounted_below(Path("/a"), mounts) == ["/a"]


def test_one_look_counts_only_so_many_files(tmp_path: Path):
    for number in range(5):
        (tmp_path / str(number)).write_bytes(bytes(4096))
    assert size_of(tmp_path) >= 5 * 4096
    assert size_of(tmp_path / "gone") == 0
