"""The environment of a job, asked for by both clients."""

from __future__ import annotations

from typing import Any

from phalanx.api.schema.jobs import EnvironmentView
from phalanx.client.calls import Call, get, path_of
from phalanx.client.ids import AnyId


def environment_call(id: AnyId) -> Call[EnvironmentView]:
    return get(path_of("jobs", id, "environment"), EnvironmentView)


class EnvironmentCalls:
    """What a client has of environments."""

    def _ask(self, call: Call[Any]) -> Any:
        raise NotImplementedError

    def environment(self, id: AnyId) -> EnvironmentView:
        """The variables that a job of yours was submitted with: exported ones and its own, with their values."""
        reply: EnvironmentView = self._ask(environment_call(id))
        return reply


class AsyncEnvironmentCalls:
    """The same for asyncio."""

    async def _ask(self, call: Call[Any]) -> Any:
        raise NotImplementedError

    async def environment(self, id: AnyId) -> EnvironmentView:
        reply: EnvironmentView = await self._ask(environment_call(id))
        return reply
