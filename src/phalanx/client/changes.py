"""Calls that change a job after it was submitted, as values, and as methods of both clients."""

from __future__ import annotations

from typing import Any, Unpack

import msgspec

from phalanx.api.schema.begin import local_begin
from phalanx.api.schema.changes import HoldRequest, UpdateFields, UpdateRequest
from phalanx.api.schema.jobs import JobView
from phalanx.client.calls import Call, path_of
from phalanx.client.ids import AnyId
from phalanx.client.keywords import check_keywords
from phalanx.clock import local_now


def hold_call(id: AnyId, reason: str) -> Call[JobView]:
    body = msgspec.json.encode(HoldRequest(reason))
    return Call(method="POST", path=path_of("jobs", id, "hold"), answer=JobView, body=body, repeatable=True)


def release_call(id: AnyId) -> Call[JobView]:
    return Call(method="POST", path=path_of("jobs", id, "release"), answer=JobView)


def update_call(id: AnyId, fields: UpdateFields) -> Call[JobView]:
    """Settings that a job has already change nothing, so a lost answer may be asked for again."""
    check_keywords("update", fields, UpdateFields.__annotations__)
    request = UpdateRequest(**fields)
    if isinstance(request.begin, str):
        request.begin = local_begin(request.begin, local_now())
    body = msgspec.json.encode(request)
    again = request.if_revision is None
    return Call(method="PATCH", path=path_of("jobs", id), answer=JobView, body=body, repeatable=again)


class ChangeCalls:
    """What a client has to change jobs."""

    def _ask(self, call: Call[Any]) -> Any:
        raise NotImplementedError

    def hold(self, id: AnyId, reason: str = "") -> JobView:
        """Place nothing more of a job until it is released; what has a place goes on."""
        view: JobView = self._ask(hold_call(id, reason))
        return view

    def release(self, id: AnyId) -> JobView:
        """Let a job that is held be placed again."""
        view: JobView = self._ask(release_call(id))
        return view

    def update(self, id: AnyId, **fields: Unpack[UpdateFields]) -> JobView:
        """Change the `priority`, `time_limit` ("none" removes it), `queue` or `begin` ("now": at once) of a job, or how
        many tasks of its array run at once (`at_once`, 0: all).

        With `if_revision` it is refused (Conflict) if the settings were changed since that revision.
        """
        view: JobView = self._ask(update_call(id, fields))
        return view


class AsyncChangeCalls:
    """The same, to be awaited."""

    async def _ask(self, call: Call[Any]) -> Any:
        raise NotImplementedError

    async def hold(self, id: AnyId, reason: str = "") -> JobView:
        view: JobView = await self._ask(hold_call(id, reason))
        return view

    async def release(self, id: AnyId) -> JobView:
        view: JobView = await self._ask(release_call(id))
        return view

    async def update(self, id: AnyId, **fields: Unpack[UpdateFields]) -> JobView:
        view: JobView = await self._ask(update_call(id, fields))
        return view
