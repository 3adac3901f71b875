"""VPSs from Python: the calls as values, and the clients' methods about them.

made = client.create_vps(ssh="generate", targets=["n1"], gpus=1)
Path("key").write_text(made.private_key)  # shown once
"""

from __future__ import annotations

from typing import Any, Unpack
from urllib.parse import quote

import msgspec

from phalanx.api.schema.vps import NewVps, StoppedVps, VpsFields, VpsRequest, VpsView
from phalanx.client.calls import Call, get, new_request_id, query_of


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


def listed(ended: bool) -> Call[list[VpsView]]:
    return get("/v1/vps", list[VpsView], query_of(all="true" if ended else None))


def show(id: str) -> Call[VpsView]:
    return get(_path(id), VpsView)


def stop(id: str) -> Call[StoppedVps]:
    return Call(method="POST", path=_path(id, "/stop"), answer=StoppedVps)


def restart(id: str) -> Call[VpsView]:
    return Call(method="POST", path=_path(id, "/restart"), answer=VpsView)


def _path(id: str, verb: str = "") -> str:
    return f"/v1/vps/{quote(id, safe='')}{verb}"


class VpsCalls:
    """The methods of `Client` that are about VPSs."""

    def _ask(self, call: Call[Any]) -> Any:
        raise NotImplementedError

    def create_vps(self, request: VpsRequest | None = None, **fields: Unpack[VpsFields]) -> NewVps:
        """Make a VPS. With `ssh="generate"` its `private_key` is in this answer and nowhere else."""
        found: NewVps = self._ask(create(request or VpsRequest(**fields)))
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


class AsyncVpsCalls:
    """The methods of `AsyncClient` that are about VPSs."""

    async def _ask(self, call: Call[Any]) -> Any:
        raise NotImplementedError

    async def create_vps(self, request: VpsRequest | None = None, **fields: Unpack[VpsFields]) -> NewVps:
        """Make a VPS. With `ssh="generate"` its `private_key` is in this answer and nowhere else."""
        found: NewVps = await self._ask(create(request or VpsRequest(**fields)))
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
