"""Snapshots of VPSs in containers: images that the node's runtime makes of them, and which one a start is from.

They are the node's own, as the files of a VPS are, and are removed with those. The home is mounted and in none of them.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import msgspec

from phalanx.core.model.containers import SNAPSHOTS
from phalanx.core.model.job import JobId
from phalanx.core.model.orders import AttemptKey
from phalanx.link.vps import ERROR_MAX, SNAPSHOTS_MAX, AskSnapshots, SnapshotsTold, VpsSnapshot
from phalanx.logger import logger
from phalanx.runner.containers.launching import ContainerLaunches
from phalanx.runner.containers.runtime import DOCKER, RuntimeFailed
from phalanx.runner.vps_homes import VpsHomes

log = logger("runner")
TAKE_WITHIN_S = 280.0


class _SnapshotRefused(Exception):
    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.reason = reason


class VpsSnapshots:
    """Those of one node."""

    def __init__(self, homes: VpsHomes, containers: ContainerLaunches | None) -> None:
        self._homes = homes
        self._containers = containers
        self._busy: set[JobId] = set()
        homes.forget_images = self.forget

    async def answer(self, asked: AskSnapshots) -> SnapshotsTold:
        """Do what is asked for, in a thread, and list what there is then."""
        job = asked.key[0]
        try:
            if job in self._busy:
                raise _SnapshotRefused("SnapshotBusy", "another snapshot of it is being taken")
            self._busy.add(job)
            try:
                return SnapshotsTold(asked.id, await asyncio.to_thread(self._done, asked))
            finally:
                self._busy.discard(job)
        except _SnapshotRefused as error:
            return SnapshotsTold(asked.id, reason=error.reason, error=str(error)[:ERROR_MAX])
        except (RuntimeFailed, OSError) as error:
            text = "".join(each if each.isprintable() else " " for each in str(error))
            return SnapshotsTold(asked.id, reason="SnapshotFailed", error=text[:ERROR_MAX])

    def forget(self, job: JobId) -> None:
        """The VPS is over: remove its images."""
        if self._containers is None or not self._containers.found.socket:
            return
        try:
            for each in self._images(job):
                self._remove(f"{SNAPSHOTS}{job}:{each}")
        except RuntimeFailed as error:
            log.warning("the snapshots of a VPS cannot be removed", job=job, why=str(error))

    def _done(self, asked: AskSnapshots) -> list[VpsSnapshot]:
        job, there = asked.key[0], self._images(asked.key[0])
        if asked.action == "take":
            self._take(asked.key, asked.name, there)
        elif asked.action != "list":
            if asked.name not in there:
                names = ", ".join(sorted(there)) or "none"
                raise _SnapshotRefused(
                    "SnapshotNotFound", f"there is no snapshot {asked.name!r}, only: {names}"
                )
            if asked.action == "choose":
                self._homes.choose_image(job, asked.name)
            else:
                self._drop(job, asked.name)
        chosen = self._homes.chosen_image(job)
        return [
            VpsSnapshot(name, float(each["Created"]), int(each["Size"]), name == chosen)
            for name, each in sorted(self._images(job).items(), key=lambda item: item[1]["Created"])
        ]

    def _take(self, key: AttemptKey, name: str, there: dict[str, dict[str, Any]]) -> None:
        assert self._containers is not None
        if name in there:
            raise _SnapshotRefused("SnapshotExists", f"there is a snapshot {name!r} already")
        if len(there) >= SNAPSHOTS_MAX:
            text = f"it has {len(there)} snapshots, as many as one VPS may have: remove some"
            raise _SnapshotRefused("TooManySnapshots", text)
        # It is not paused: its processes are in cgroups of ours, where the runtime does not look for them.
        words = (
            f"container={self._containers.name_of(key)}&repo={quote(SNAPSHOTS + key[0])}&tag={name}&pause=0"
        )
        self._runtime.call("POST", f"{DOCKER}/commit?{words}", {}, timeout_s=TAKE_WITHIN_S)

    def _drop(self, job: JobId, name: str) -> None:
        if self._homes.chosen_image(job) == name:
            raise _SnapshotRefused(
                "SnapshotInUse", f"the VPS starts from {name!r}: restore another one first"
            )
        self._remove(f"{SNAPSHOTS}{job}:{name}")

    def _remove(self, image: str) -> None:
        self._runtime.call("DELETE", f"{DOCKER}/images/{quote(image, safe='')}?force=1")

    def _images(self, job: JobId) -> dict[str, dict[str, Any]]:
        """By their names."""
        wanted = quote(msgspec.json.encode({"reference": [f"{SNAPSHOTS}{job}"]}).decode())
        listed = self._runtime.call("GET", f"{DOCKER}/images/json?filters={wanted}").get("list", [])
        own = f"{SNAPSHOTS}{job}:"
        return {
            tag.removeprefix(own): each
            for each in listed
            for tag in each.get("RepoTags") or ()
            if tag.startswith(own)
        }

    @property
    def _runtime(self) -> Any:
        if self._containers is None or not self._containers.found.socket:
            raise _SnapshotRefused("SnapshotFailed", "the node has no runtime for containers")
        return self._containers.found.runtime
