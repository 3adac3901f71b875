"""What is refused of snapshots of a VPS, against a runtime that only remembers."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from phalanx.core.model.containers import SNAPSHOTS
from phalanx.core.model.job import ulid
from phalanx.link.vps import SNAPSHOTS_MAX, AskSnapshots, SnapshotAction, SnapshotsTold
from phalanx.runner.containers.runtime import RuntimeFailed
from phalanx.runner.vps_homes import VpsHomes
from phalanx.runner.vps_snapshots import VpsSnapshots

pytestmark = pytest.mark.anyio
JOB = ulid(1, 1)


class FakeRuntime:
    """Images by their names; a commit makes one."""

    def __init__(self) -> None:
        self.images: dict[str, dict[str, Any]] = {}
        self.fails = ""

    def call(
        self, method: str, path: str, body: Any = None, timeout_s: float | None = None
    ) -> dict[str, Any]:
        asked = parse_qs(urlsplit(path).query)
        if method == "GET":
            return {"list": list(self.images.values())}
        if self.fails:
            raise RuntimeFailed(self.fails)
        if method == "DELETE":
            del self.images[unquote(urlsplit(path).path.rpartition("/")[2])]
            return {}
        name = f"{asked['repo'][0]}:{asked['tag'][0]}"
        self.images[name] = {"RepoTags": [name], "Created": len(self.images), "Size": 5}
        return {}


class FakeContainers:
    """A node with that runtime."""

    def __init__(self) -> None:
        self.runtime = FakeRuntime()
        self.found = self
        self.socket = "/run/socket"

    def name_of(self, key: object) -> str:
        return "the-container"


class Stage:
    def __init__(self, folder: Path) -> None:
        self.homes = VpsHomes(folder)
        (folder / JOB).mkdir()
        self.containers = FakeContainers()
        self.snapshots = VpsSnapshots(self.homes, self.containers)  # type: ignore[arg-type]

    async def ask(self, action: SnapshotAction, name: str = "") -> SnapshotsTold:
        return await self.snapshots.answer(AskSnapshots(7, (JOB, 0, 1), action, name))


async def test_a_snapshot_is_taken_chosen_and_removed(tmp_path: Path):
    stage = Stage(tmp_path)
    await stage.ask("take", "a")
    told = await stage.ask("take", "b")
    assert [(each.name, each.is_chosen) for each in told.snapshots] == [("a", False), ("b", False)]
    assert [each.is_chosen for each in (await stage.ask("choose", "b")).snapshots] == [False, True]
    assert stage.homes.chosen_image(JOB) == "b"
    assert [each.name for each in (await stage.ask("remove", "a")).snapshots] == ["b"]
    assert {*stage.containers.runtime.images} == {f"{SNAPSHOTS}{JOB}:b"}


async def test_what_cannot_be_done_says_why(tmp_path: Path):
    stage = Stage(tmp_path)
    await stage.ask("take", "a")
    await stage.ask("choose", "a")
    assert (await stage.ask("take", "a")).reason == "SnapshotExists"
    assert (await stage.ask("remove", "a")).reason == "SnapshotInUse"
    assert (await stage.ask("choose", "b")).reason == "SnapshotNotFound"
    stage.containers.runtime.fails = "no space\nleft"
    failed = await stage.ask("take", "c")
    assert (failed.reason, failed.error) == ("SnapshotFailed", "no space left")
    stage.containers.runtime.fails = ""
    for number in range(SNAPSHOTS_MAX - 1):
        await stage.ask("take", f"more-{number}")
    assert (await stage.ask("take", "too-many")).reason == "TooManySnapshots"
    none = VpsSnapshots(stage.homes, None)
    assert (await none.answer(AskSnapshots(1, (JOB, 0, 1), "list"))).reason == "SnapshotFailed"


async def test_one_at_a_time(tmp_path: Path):
    stage = Stage(tmp_path)
    stage.snapshots._busy.add(JOB)
    assert (await stage.ask("list")).reason == "SnapshotBusy"


def test_all_of_a_vps_that_is_over_are_removed_and_no_others(tmp_path: Path):
    stage = Stage(tmp_path)
    images = stage.containers.runtime.images
    for name in (f"{SNAPSHOTS}{JOB}:a", f"{SNAPSHOTS}{ulid(1, 2)}:a", "localhost/other:1"):
        images[name] = {"RepoTags": [name], "Created": 1, "Size": 1}
    stage.homes.forget_images(JOB)
    assert {*images} == {f"{SNAPSHOTS}{ulid(1, 2)}:a", "localhost/other:1"}
