"""Artifacts in the folder of a task: what is found, what is left out, and that no link leads out of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from phalanx.runner import artifacts
from phalanx.runner.artifacts import USUAL_LIMITS, ArtifactLimits, find_artifacts, opened
from phalanx.runner.log_files import LogPath, log_path
from tests.support.as_user import run_as_user

JOB = "01jcm3k8t0z9x5v7b2n4d6f8gh"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = Path(log_path(tmp_path, JOB, 0, 1, "artifacts"))
    made.mkdir(parents=True)
    return made


def the_path(folder: Path) -> LogPath:
    return log_path(folder.parents[1], JOB, 0, 1, "artifacts")


def test_files_are_found_in_the_order_of_their_names(folder: Path):
    for path in ("b", "a", "sub/z", "sub/deeper/y"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)
    found = find_artifacts(the_path(folder), USUAL_LIMITS)
    assert found.files == [("a", 1), ("b", 1), ("sub/z", 5), ("sub/deeper/y", 12)]
    assert (found.left_out, found.left_out_count) == ([], 0)
    with opened(the_path(folder), "sub/deeper/y") as file:
        assert os.read(file, 100) == b"sub/deeper/y"


def test_links_and_pipes_are_left_out_and_cannot_be_opened(folder: Path):
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "etc").symlink_to("/etc")
    os.mkfifo(folder / "fifo")
    found = find_artifacts(the_path(folder), USUAL_LIMITS)
    assert found.files == []
    assert found.left_out == ["'etc': a link", "'fifo': not a regular file", "'link': a link"]
    for path in ("link", "etc/passwd", "fifo"):
        with (
            pytest.raises(OSError, match=r"symbolic link|Not a directory|not a regular file"),
            opened(the_path(folder), path),
        ):
            pass


def test_the_folder_itself_may_be_no_link(folder: Path):
    folder.rmdir()
    folder.symlink_to("/etc")
    with pytest.raises(OSError, match="Not a directory"):
        find_artifacts(the_path(folder), USUAL_LIMITS)


def test_a_folder_that_cannot_be_read_is_left_out_and_the_rest_is_kept(folder: Path):
    for name, mode in (("closed", 0o000), ("listable", 0o444), ("read-only", 0o555)):
        (folder / name).mkdir()
        (folder / name / "file").write_text("x")
        (folder / name).chmod(mode)
    (folder / "model.pt").write_text("weights")
    code = (
        "from pathlib import Path; from phalanx.runner.artifacts import *;"
        "from phalanx.runner.log_files import log_path;"
        f"found = find_artifacts(log_path(Path(sys.argv[1]), {JOB!r}, 0, 1, 'artifacts'), USUAL_LIMITS);"
        "print(*[path for path, _ in found.files], found.left_out_count)"
    )
    assert run_as_user(code, folder.parents[1]).split() == ["model.pt", "read-only/file", "2"]


def test_count_and_size_are_limited(folder: Path):
    for name in "abcd":
        (folder / name).write_bytes(bytes(10))
    with (folder / "huge").open("wb") as file:
        file.truncate(1 << 40)
    assert len(find_artifacts(the_path(folder), ArtifactLimits(2, 1000)).files) == 2
    found = find_artifacts(the_path(folder), ArtifactLimits(100, 35))
    assert found.files == [("a", 10), ("b", 10), ("c", 10)]
    assert found.left_out_count == 2
    assert "of all at most 35 are kept" in found.left_out[0]


def test_what_is_looked_at_is_limited(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(artifacts, "ENTRIES_MAX", 3)
    for number in range(5):
        (folder / str(number)).touch()
    found = find_artifacts(the_path(folder), USUAL_LIMITS)
    assert len(found.files) == 3
    assert found.left_out == ["'\\u2026': more than 3 entries"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another account")
def test_of_a_folder_of_another_account_only_files_of_that_account_are_kept(folder: Path):
    """A task can move what it may not read, out of a folder that it may write to; the runner could read it for it."""
    for name in ("own", "roots"):
        (folder / name).write_text(name)
    os.chown(folder, 1, 1)
    os.chown(folder / "own", 1, 1)
    found = find_artifacts(the_path(folder), USUAL_LIMITS)
    assert found.files == [("own", 3)]
    assert found.left_out == ["'roots': another account's file"]
    with pytest.raises(OSError, match="another account's file"), opened(the_path(folder), "roots"):
        pass
