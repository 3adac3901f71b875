"""VPSs from Python: the calls as values, and the clients' methods about them.

made = client.create_vps(ssh="generate", targets=["n1"], gpus=1)
Path("key").write_text(made.private_key)  # shown once
"""

from __future__ import annotations

from typing import Any, Unpack
from urllib.parse import quote

import msgspec

from phalanx.api.schema.vps import (
    NewVps,
    SnapshotRequest,
    SnapshotView,
    StoppedVps,
    VpsFields,
    VpsRequest,
    VpsView,
)
from phalanx.client.calls import TIMEOUT_S, Call, get, new_request_id, query_of
from phalanx.client.keywords import check_keywords

SNAPSHOT_WITHIN_S = 320.0  # of a large container


def create(request: VpsRequest) -> Call[NewVps]:
    """A repetition makes no second VPS; but the private key was in the first answer alone."""
    id = request.request_id or new_request_id()
    whole = msgspec.structs.replace(request, request_id=id)
    return Call(
        method="POST",
        path="/v1/vps",
        answer=NewVps,
        body=msgspec.json.encode(whole),
        repeatable=True,
        request_id=id,
    )


def _request(fields: VpsFields) -> VpsRequest:
    check_keywords("create_vps", fields, VpsFields.__annotations__)
    return VpsRequest(**fields)


def listed(ended: bool) -> Call[list[VpsView]]:
    return get("/v1/vps", list[VpsView], query_of(all="true" if ended else None))


def show(id: str) -> Call[VpsView]:
    return get(_path(id), VpsView)


def stop(id: str) -> Call[StoppedVps]:
    return Call(method="POST", path=_path(id, "/stop"), answer=StoppedVps)


def restart(id: str) -> Call[VpsView]:
    return Call(method="POST", path=_path(id, "/restart"), answer=VpsView)


def snapshots(id: str) -> Call[list[SnapshotView]]:
    return msgspec.structs.replace(get(_path(id, "/snapshots"), list[SnapshotView]), anywhere=False)


def snapshot(id: str, name: str) -> Call[SnapshotView]:
    return _named(id, "/snapshots", name, SnapshotView, SNAPSHOT_WITHIN_S)


def restore(id: str, name: str) -> Call[VpsView]:
    return _named(id, "/restore", name, VpsView)


def remove_snapshot(id: str, name: str) -> Call[list[SnapshotView]]:
    return _named(id, "/remove-snapshot", name, list[SnapshotView])


def _named(id: str, verb: str, name: str, answer: Any, timeout_s: float = TIMEOUT_S) -> Call[Any]:
    body = msgspec.json.encode(SnapshotRequest(name=name))
    return Call(method="POST", path=_path(id, verb), answer=answer, body=body, timeout_s=timeout_s)


def _path(id: str, verb: str = "") -> str:
    return f"/v1/vps/{quote(id, safe='')}{verb}"


class VpsCalls:
    """The methods of `Client` that are about VPSs."""

    def _ask(self, call: Call[Any]) -> Any:
        raise NotImplementedError

    def create_vps(self, request: VpsRequest | None = None, **fields: Unpack[VpsFields]) -> NewVps:
        """Make a VPS. With `ssh="generate"` its `private_key` is in this answer and nowhere else."""
        found: NewVps = self._ask(create(request or _request(fields)))
        return found

    def list_vps(self, *, ended: bool = False) -> list[VpsView]:
        """Your own, or everybody's as operator."""
        found: list[VpsView] = self._ask(listed(ended))
        return found

    def vps(self, id: str) -> VpsView:
        """One VPS: its node, its port, its host key."""
        found: VpsView = self._ask(show(id))
        return found

    def stop_vps(self, id: str) -> StoppedVps:
        """Stop a VPS for good; its files are removed."""
        found: StoppedVps = self._ask(stop(id))
        return found

    def restart_vps(self, id: str) -> VpsView:
        """Start a VPS anew on its node, with its files, keys and host key."""
        found: VpsView = self._ask(restart(id))
        return found

    def snapshot_vps(self, id: str, name: str = "") -> SnapshotView:
        """Make an image of a VPS in a container, on its node; without a name it gets one."""
        found: SnapshotView = self._ask(snapshot(id, name))
        return found

    def vps_snapshots(self, id: str) -> list[SnapshotView]:
        """The snapshots of a VPS, the oldest first."""
        found: list[SnapshotView] = self._ask(snapshots(id))
        return found

    def restore_vps(self, id: str, name: str) -> VpsView:
        """Start a VPS anew from a snapshot; its home stays as it is."""
        found: VpsView = self._ask(restore(id, name))
        return found

    def remove_snapshot(self, id: str, name: str) -> list[SnapshotView]:
        """Remove a snapshot that the VPS does not start from; those that are left."""
        found: list[SnapshotView] = self._ask(remove_snapshot(id, name))
        return found


class AsyncVpsCalls:
    """The methods of `AsyncClient` that are about VPSs."""

    async def _ask(self, call: Call[Any]) -> Any:
        raise NotImplementedError

    async def create_vps(self, request: VpsRequest | None = None, **fields: Unpack[VpsFields]) -> NewVps:
        """Make a VPS. With `ssh="generate"` its `private_key` is in this answer and nowhere else."""
        found: NewVps = await self._ask(create(request or _request(fields)))
        return found

    async def list_vps(self, *, ended: bool = False) -> list[VpsView]:
        found: list[VpsView] = await self._ask(listed(ended))
        return found

    async def vps(self, id: str) -> VpsView:
        found: VpsView = await self._ask(show(id))
        return found

    async def stop_vps(self, id: str) -> StoppedVps:
        found: StoppedVps = await self._ask(stop(id))
        return found

    async def restart_vps(self, id: str) -> VpsView:
        found: VpsView = await self._ask(restart(id))
        return found

    async def snapshot_vps(self, id: str, name: str = "") -> SnapshotView:
        """Make an image of a VPS in a container, on its node; without a name it gets one."""
        found: SnapshotView = await self._ask(snapshot(id, name))
        return found

    async def vps_snapshots(self, id: str) -> list[SnapshotView]:
        """The snapshots of a VPS, the oldest first."""
        found: list[SnapshotView] = await self._ask(snapshots(id))
        return found

    async def restore_vps(self, id: str, name: str) -> VpsView:
        """Start a VPS anew from a snapshot; its home stays as it is."""
        found: VpsView = await self._ask(restore(id, name))
        return found

    async def remove_snapshot(self, id: str, name: str) -> list[SnapshotView]:
        """Remove a snapshot that the VPS does not start from; those that are left."""
        found: list[SnapshotView] = await self._ask(remove_snapshot(id, name))
        return found
