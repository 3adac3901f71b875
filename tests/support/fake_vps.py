"""Fake of the commands about VPSs: each job that is held is one, and nothing runs."""

from __future__ import annotations

import msgspec

from phalanx.api.schema.vps import NewVps, SnapshotView, StoppedVps, VpsRequest, VpsView, read_vps
from phalanx.core.model.job import Job
from phalanx.errors import NotFound


class FakeVps:
    """The part of `Commands` that is about VPSs."""

    held: dict[str, Job]

    async def create_vps(self, request: VpsRequest, user: str, role: str) -> NewVps:
        _, vps = read_vps(request)
        fields = _fields("0" * 26, user) | {"ssh": vps.ssh, "private_key": "a-private-key"}
        return msgspec.convert(fields, NewVps)

    async def list_vps(self, user: str | None, *, ended: bool) -> list[VpsView]:
        return [_view(job) for job in self.held.values() if user in (None, job.user)]

    async def vps(self, id: str) -> VpsView:
        if id not in self.held:
            raise NotFound(f"no VPS {id}", reason="VpsNotFound")
        return _view(self.held[id])

    async def stop_vps(self, id: str) -> StoppedVps:
        return StoppedVps((await self.vps(id)).id)

    async def restart_vps(self, id: str, user: str) -> VpsView:
        return await self.vps(id)

    async def vps_snapshots(self, id: str) -> list[SnapshotView]:
        await self.vps(id)
        return [SnapshotView("one", 1.0, 2, False)]

    async def snapshot_vps(self, id: str, name: str) -> SnapshotView:
        await self.vps(id)
        return SnapshotView(name, 1.0, 2, False)

    async def restore_vps(self, id: str, name: str, user: str) -> VpsView:
        return await self.vps(id)

    async def remove_snapshot(self, id: str, name: str) -> list[SnapshotView]:
        await self.vps(id)
        return []


def _view(job: Job) -> VpsView:
    return msgspec.convert(_fields(job.id, job.user), VpsView)


def _fields(id: str, user: str) -> dict[str, object]:
    return {
        "id": id,
        "number": 1,
        "name": "lab",
        "user": user,
        "status": "Running",
        "reason": "",
        "message": "",
        "node": "n1",
        "ssh": "generate",
        "ssh_port": 30_123,
        "host_key": "ssh-ed25519 AAAA",
        "host_key_fingerprint": "SHA256:x",
        "key_fingerprints": ["SHA256:y"],
        "address": None,
        "image": None,
        "request": {"cores": 1},
        "devices": [],
        "attempt": 1,
        "queue": "default",
        "priority": 0,
        "submitted_at": 1.0,
        "started_at": 2.0,
        "ended_at": None,
    }
