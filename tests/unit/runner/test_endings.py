"""Artifacts whose end was reported before they were sent: sent later, or a list that says why they never come."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from msgspec import structs

from phalanx.core.model.files import FileKind, Manifest
from phalanx.core.model.orders import AttemptKey
from phalanx.core.model.task_results import PartResult
from phalanx.core.runner.attempts import ProcessEnd, exit_of
from phalanx.link.exits import wrong_exit
from phalanx.runner import endings
from phalanx.runner.artifacts import ArtifactLimits
from phalanx.runner.endings import AttemptEndings
from phalanx.runner.log_files import ARTIFACTS, LogPath, log_path
from phalanx.runner.uploads import Read
from tests.support.clocks import ManualClock

KEY = ("0" * 26, 0, 1)


class LateLaunches:
    """An attempt of an earlier runner, and the artifacts that it left."""

    def __init__(self, folder: Path, leaves: tuple[str, ...]) -> None:
        self.log_root = folder
        self.path = log_path(folder, *KEY, ARTIFACTS)
        for name in leaves:
            Path(str(self.path)).mkdir(parents=True)
            (Path(str(self.path)) / name).write_text("weights")

    def find_files(self, key: AttemptKey) -> None:
        pass

    def close_artifacts(self, key: AttemptKey) -> bool:
        return True

    def artifacts_path(self, key: AttemptKey) -> LogPath:
        return self.path


class TakenUploads:
    """Takes everything."""

    def __init__(self) -> None:
        self.lists: list[Manifest] = []

    def add(self, keys: object) -> None:
        pass

    async def put(self, key: AttemptKey, kind: FileKind, path: str, size: int, read: Read) -> str:
        if kind == "manifest":
            self.lists.append(msgspec.json.decode(read(0, size), type=Manifest))
        return "ab" * 32


def resumed(folder: Path, leaves: tuple[str, ...] = ("model.pt",)) -> list[Manifest]:
    async def main() -> list[Manifest]:
        uploads = TakenUploads()
        launches: Any = LateLaunches(folder, leaves)
        sent: Any = uploads
        engine: Any = None  # it is asked only after a refusal
        limits = ArtifactLimits(10, 1 << 20)
        waiting = AttemptEndings(launches, sent, limits, ManualClock(), engine, lambda _key, _end: None)
        waiting.resume(set())
        await asyncio.gather(*cast(set[Any], waiting._tasks))
        return uploads.lists

    return asyncio.run(main())


class AnswersForSeveral(LateLaunches):
    """Its program has answered for another task, with more than travels with an end."""

    def with_result(self, key: AttemptKey, end: ProcessEnd) -> ProcessEnd:
        return structs.replace(end, result="1", is_own=True, parts=(PartResult("1" * 26, "x" * 5000),))


def test_an_end_whose_files_could_not_be_brought_has_none_of_what_was_to_be_among_them(tmp_path: Path):
    async def main() -> list[ProcessEnd]:
        uploads, ends = TakenUploads(), list[ProcessEnd]()
        launches: Any = AnswersForSeveral(tmp_path, ())
        sent: Any = uploads
        engine: Any = None
        at = ArtifactLimits(10, 1 << 20)
        waiting = AttemptEndings(launches, sent, at, ManualClock(), engine, lambda _, end: ends.append(end))
        assert waiting.finish(KEY, ProcessEnd(0, None, False, None, 1.0, 2.0)) is None
        await asyncio.wait(cast(set[Any], waiting._tasks))
        return ends

    with pytest.MonkeyPatch.context() as out_of_threads:
        out_of_threads.setattr(TakenUploads, "put", no_thread)
        [end] = asyncio.run(main())
    assert (end.parts, end.note) == ((), "its files were not kept; the runner's log says why")
    assert wrong_exit(exit_of(end, None, 1.0)) == ""


async def no_thread(*_: object) -> str:
    raise RuntimeError("can't start new thread")


def test_they_are_sent_and_listed(tmp_path: Path):
    [listed] = resumed(tmp_path)
    assert ([each.path for each in listed.files], listed.left_out_count) == (["model.pt"], 0)
    assert not Path(str(log_path(tmp_path, *KEY, ARTIFACTS))).exists()


def test_of_those_that_cannot_be_read_a_list_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def broken(folder: LogPath, limits: ArtifactLimits) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(endings, "find_artifacts", broken)
    [listed] = resumed(tmp_path)
    assert (listed.files, listed.left_out_count) == ((), 1)
    assert "Input/output error" in listed.left_out[0]


def test_what_a_runner_that_was_killed_has_left_to_remove_is_not_sent_in_place_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as killed:
        killed.setattr(
            endings, "remove_tree", lambda folder: (Path(folder) / "model.pt").rename(f"{folder}/left")
        )
        [listed] = resumed(tmp_path)
    assert [each.path for each in listed.files] == ["model.pt"]
    folder = Path(str(log_path(tmp_path, *KEY, ARTIFACTS)))
    assert not folder.exists()
    assert [path.name for path in folder.parent.rglob("left")] == ["left"]
    assert resumed(tmp_path, leaves=()) == []
    assert [*folder.parent.iterdir()] == []


def test_a_folder_that_cannot_be_removed_does_not_replace_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def refuses(folder: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(endings, "remove_tree", refuses)
    [listed] = resumed(tmp_path)
    assert [each.path for each in listed.files] == ["model.pt"]
