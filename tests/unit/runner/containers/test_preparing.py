"""How far a pull is, and which archives are loaded already."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from phalanx.core.model.containers import CONTAINERS, MOUNTS, OF_RUNTIMES, is_ours
from phalanx.core.model.resources import Capacity
from phalanx.runner.containers.found import RuntimeFound, find_runtime, with_runtime
from phalanx.runner.containers.launching import parse_folders
from phalanx.runner.containers.preparing import (
    AT_ONCE,
    ImagePreparations,
    LoadedArchives,
    PreparedImage,
    PullProgress,
    archive_name,
    is_called,
    is_no_such_image,
    with_tag,
)


def test_progress_is_summed_over_layers():
    progress = PullProgress("python")
    assert progress.told({"status": "Pulling fs layer", "id": "a"}) == "pulling python"
    progress.told({"id": "a", "progressDetail": {"current": 1 << 20, "total": 4 << 20}})
    text = progress.told({"id": "b", "progressDetail": {"current": 1 << 20, "total": 4 << 20}})
    assert text == "pulling python: 2 MiB of 8 MiB (25%)"
    assert progress.told({"id": "a", "progressDetail": {"current": "?"}}) == text


def test_an_archive_is_loaded_again_when_the_file_has_changed(tmp_path: Path):
    path = tmp_path / "containers/archives.json"
    LoadedArchives(path).remember("/a.tar", (1, 2, 3), "sha256:1")
    known = LoadedArchives(path)
    assert known.image_of("/a.tar", (1, 2, 3)) == "sha256:1"
    assert known.image_of("/a.tar", (1, 2, 4)) == ""
    path.write_text("broken")
    assert LoadedArchives(path).image_of("/a.tar", (1, 2, 3)) == ""
    assert archive_name("/a.tar", (1,)) != archive_name("/a.tar", (2,))


@pytest.mark.parametrize(
    ("said", "is_users"),
    [
        ("initializing source docker://r/a:1: reading manifest 1 in r/a: manifest unknown", True),  # podman
        ("manifest for r/a:1 not found: manifest unknown: manifest unknown", True),  # Docker
        ("invalid reference format: repository name must be lowercase", True),
        ('Get "https://r/v2/": dial tcp 127.0.0.1:1: connect: connection refused', False),
        ("writing blob: storing blob to file: no space left on device", False),
        ("unauthorized: authentication required", False),
    ],
)
def test_a_name_that_does_not_exist_is_told_from_what_a_node_may_lack(said: str, is_users: bool):
    assert is_no_such_image(said) == is_users


def test_a_name_without_a_tag_is_the_latest():
    assert with_tag("127.0.0.1:5000/a") == "127.0.0.1:5000/a:latest"
    assert with_tag("a:1") == "a:1"
    assert with_tag("a@sha256:0") == "a@sha256:0"


def test_an_image_is_known_by_its_name_and_not_by_a_part_of_its_id():
    known = "docker.io/library/python:3.12"
    assert all(is_called(known, name) for name in (known, "python:3.12", "library/python:3.12"))
    assert is_called("python:3.12", known)
    assert is_called("localhost/a:latest", "a")
    assert is_called("docker.io/b/a@sha256:0", "b/a:1@sha256:0")
    assert not any(
        is_called(known, name) for name in ("7", "sha256:7", "thon:3.12", "python", "b/python:3.12")
    )
    ours = (
        "localhost/phalanx-vps/01kx:a",
        "phalanx-vps/01kx",
        "phalanx-archive:0",
        f"x/phalanx-archive@sha256:{0:064}",
    )
    assert all(map(is_ours, ours))
    assert not any(
        map(is_ours, ("docker.io/library/python:3.12", "my-phalanx-vps:1", "/phalanx-vps/a.tar", ""))
    )


class HangingImages(ImagePreparations):
    """Those whose names begin with slow come when they are let."""

    hanging = threading.Event()

    def _work(self, preparation: Any) -> PreparedImage:
        place = preparation.image.place
        if place.startswith("slow"):
            assert self.hanging.wait(20.0)
        return PreparedImage(image=place)


async def prepared_first(images: HangingImages, asked: list[tuple[str, str]]) -> str:
    """Of images that users ask for, the first that is ready."""
    ready: asyncio.Queue[str] = asyncio.Queue()
    for user, image in asked:
        brief = SimpleNamespace(user=user, command=SimpleNamespace(image=image))
        effect: Any = SimpleNamespace(start=SimpleNamespace(key=(image, 0, 1)), brief=brief)
        images.begin(effect, None, lambda key, _: ready.put_nowait(key[0]))
    try:
        return await asyncio.wait_for(ready.get(), 10.0)
    finally:
        images.hanging.set()
        images.close()


def test_images_of_one_user_that_hang_keep_no_other_waiting(tmp_path: Path):
    images = HangingImages(RuntimeFound("/s", "podman", ""), tmp_path, 20.0)
    asked = [("bob", f"slow{number}") for number in range(AT_ONCE + 1)]
    assert asyncio.run(prepared_first(images, [*asked, ("alice", "quick")])) == "quick"


def test_a_node_says_which_runtime_it_has_and_labels_cannot_be_forged(tmp_path: Path):
    forged = Capacity(1, 1, labels={**dict(OF_RUNTIMES), "rack": "r1"})
    none = with_runtime(forged, find_runtime(str(tmp_path / "no.sock")))
    assert none.labels == {"rack": "r1"}
    assert none.containers.startswith("none: no container runtime answers at ")
    docker = with_runtime(forged, RuntimeFound("/s", "docker", "docker 24"))
    assert docker.labels == {"rack": "r1", **dict([CONTAINERS, MOUNTS])}
    with_accounts = with_runtime(forged, RuntimeFound("/s", "docker", "docker 24"), has_accounts=True)
    assert with_accounts.labels == {"rack": "r1", **dict([CONTAINERS])}
    podman = with_runtime(forged, RuntimeFound("/s", "podman", "podman 4"), has_accounts=True)
    assert podman.labels == forged.labels
    assert find_runtime("none").socket == ""


def test_folders_of_a_setting():
    assert parse_folders("/data/; /scratch;/") == ("/data", "/scratch", "/")
