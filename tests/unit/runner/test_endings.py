"""Ends that wait for files: artifacts that are sent later, and long results, which a thread reads."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from msgspec import structs

from phalanx.core.model.files import FileKind, Manifest
from phalanx.core.model.orders import AttemptKey, key_text
from phalanx.core.model.resources import Capacity
from phalanx.core.model.task_results import PartResult
from phalanx.core.runner.attempts import ProcessEnd, exit_of
from phalanx.link.exits import wrong_exit
from phalanx.runner import endings
from phalanx.runner.accounts import Accounts
from phalanx.runner.artifacts import ArtifactLimits
from phalanx.runner.cgroups import Cgroups
from phalanx.runner.endings import AttemptEndings
from phalanx.runner.keeper_messages import Row
from phalanx.runner.keepers import NodeKeeper
from phalanx.runner.launches import Launches
from phalanx.runner.limits import AttemptLimits
from phalanx.runner.log_files import ARTIFACTS, LogPath, log_path
from phalanx.runner.machine import LocalMachine
from phalanx.runner.turn import RunnerEngine
from phalanx.runner.uploads import Read
from tests.support.clocks import ManualClock
from tests.support.turns import Turns, counted_turns
from tests.support.waiting import until

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

    def with_result(self, key: AttemptKey, end: ProcessEnd, bytes_max: int) -> ProcessEnd:
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


class CountingUploads(TakenUploads):
    """Takes everything, and notes how many turns the loop has had when the first file comes."""

    turns: Turns | None = None
    turns_before = 0

    async def put(self, key: AttemptKey, kind: FileKind, path: str, size: int, read: Read) -> str:
        self.turns_before = self.turns_before or (0 if self.turns is None else self.turns.count)
        return await super().put(key, kind, path, size, read)


class RealAnswers:
    """Ends of programs that answer for many, read by the runner's own code from files on disk."""

    def __init__(self, folder: Path) -> None:
        engine = RunnerEngine("n1", "life", "origin", "token", Capacity(4, 0))
        none = Cgroups((), "not in this test", False)
        limits, machine = AttemptLimits(none, engine.capacity), LocalMachine(folder)
        self.keeper = NodeKeeper((machine, none), engine, ignore, ignore, ignore)
        self.launches = Launches(engine, folder, {}, 0, limits, machine, Accounts(None))
        self.uploads, self.ends = CountingUploads(), list[tuple[int, ProcessEnd]]()
        taken: Any = self.uploads
        at_most = ArtifactLimits(10, 1 << 20)
        self.endings = AttemptEndings(self.launches, taken, at_most, ManualClock(), engine, self.ended)

    def ended(self, key: AttemptKey, end: ProcessEnd) -> None:
        self.ends.append((key[1], end))

    def finish(self, position: int, results: list[str]) -> ProcessEnd | None:
        """It has written results of others, and ends."""
        key = KEY[0], position, 1
        memo = f'{{"tasks":{len(results) + 1}}}'
        self.launches.adopt(self.keeper, key, 0, Row(f"{key_text(key)}/0", "ended", 0, 1.0, memo=memo))
        path = Path(log_path(self.launches.log_root, *key, "result"))
        path.parent.mkdir(parents=True, exist_ok=True)
        parts = ",".join(f'"{at:026d}":{result}' for at, result in enumerate(results))
        path.write_text(f'{{"result":{position},"children":{{{parts}}}}}')
        return self.endings.finish(key, ProcessEnd(0, None, False, None, 1.0, 2.0))


def ignore(*_: object) -> None:
    """Nobody asks."""


SLOW = f"[{'[],' * 21_000}[]]"  # its 63 KB take a while: all their brackets are counted
DEEP = f"[{'[],' * 20_000}{'[' * 100}{']' * 101}"  # it takes as long, and is left out in the end


def test_the_loop_turns_while_a_long_answer_is_taken_apart(tmp_path: Path):
    async def main() -> RealAnswers:
        real = RealAnswers(tmp_path)
        async with counted_turns() as real.uploads.turns:
            assert real.finish(1, [SLOW] * 20) is None
            await until(lambda: real.ends)
        return real

    real = asyncio.run(main())
    [(_, end)] = real.ends
    assert [part.result_bytes for part in end.parts] == [len(SLOW)] * 20
    assert real.uploads.turns_before > 20, "heartbeats and orders had to wait for it"


def test_long_answers_are_read_one_after_another_and_a_short_one_waits_for_none(tmp_path: Path):
    async def main() -> RealAnswers:
        real = RealAnswers(tmp_path)
        assert real.finish(1, [DEEP, DEEP, DEEP, "1"]) is None
        assert real.finish(2, [f'"{"x" * 900}"'] * 5) is None
        at_once = real.finish(3, ["3"])
        assert at_once is not None and at_once.parts == (PartResult("0" * 26, "3"),)
        await until(lambda: len(real.ends) == 2)
        return real

    ends = asyncio.run(main()).ends
    assert [(position, end.result, len(end.parts)) for position, end in ends] == [(1, "1", 1), (2, "2", 5)]
    assert {end.parts[-1].result_bytes for _, end in ends} == {0}, "they travel with the end"


def test_without_a_thread_a_long_answer_is_read_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(asyncio, "to_thread", no_thread)

    async def main() -> list[tuple[int, ProcessEnd]]:
        real = RealAnswers(tmp_path)
        assert real.finish(1, [f'"{"x" * 900}"'] * 10) is None
        await until(lambda: real.ends)
        return real.ends

    [(_, end)] = asyncio.run(main())
    assert (end.result, end.result_error, len(end.parts)) == ("1", "", 10)


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
