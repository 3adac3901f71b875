"""The environment of a job on every store: it survives the coordinator that took it, and nobody can read it there."""

from __future__ import annotations

import pytest
from msgspec import structs

from phalanx.core.cluster.environment_events import EnvironmentKept
from phalanx.core.cluster.history_image import environments_of
from phalanx.core.model.orders import Brief
from phalanx.errors import Conflict
from phalanx.link import wire
from tests.contract.backends import KINDS, Backend
from tests.contract.coordinators import Runner, a_coordinator_group
from tests.support.waiting import until

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("backend", [*KINDS], indirect=True)]
EXPORTED = {"PATH": "/venv/bin:/usr/bin", "API_KEY": "tops3cret-of-ada"}


def briefs(runner: Runner) -> list[Brief]:
    orders = [each for message in runner.heard if isinstance(message, wire.Orders) for each in message.orders]
    return [order for order in orders if isinstance(order, Brief)]


async def test_a_coordinator_that_is_killed_after_a_submit_loses_no_environment(backend: Backend):
    async with a_coordinator_group(backend, lease_s=1.0) as group:
        c1, c2 = await group.coordinator("c1"), await group.coordinator("c2")
        first = await c1.submit(exported=EXPORTED, env={"LR": "0.1"}, request_id="r")
        await c1.submit(exported=EXPORTED, env={"LR": "0.1"})
        await group.killed(c1, c2)
        assert await c2.submit(exported=EXPORTED, env={"LR": "0.1"}, request_id="r") == first
        with pytest.raises(Conflict):
            await c2.submit(exported=EXPORTED, env={"LR": "0.2"}, request_id="r")
        n1 = await group.runner(c2, "n1")
        await n1.started(first)
        told = next(brief for brief in briefs(n1) if brief.job == first)
        assert (told.exported, told.command.env, told.trouble) == (EXPORTED, {"LR": "0.1"}, "")
        shown = await c2.commands.environment(first)
        assert (shown.exported, shown.env) == (EXPORTED, {"LR": "0.1"})
        view = await c2.commands.job(first)
        assert (view.exported, view.env) == (sorted(EXPORTED), {"LR": "0.1"})
        kept = [event for event in await group.log() if isinstance(event, EnvironmentKept)]
        assert len(kept) == 1  # of two jobs
        loaded = await (await backend.store()).load()
        assert not any(b"tops3cret" in batch.body or b"API_KEY" in batch.body for batch in loaded.batches)


async def test_a_job_of_the_history_has_its_environment_in_a_record(backend: Backend):
    async with a_coordinator_group(backend) as group:
        c1 = await group.coordinator("c1")
        jobs = [await c1.submit(exported=EXPORTED) for _ in range(2)]
        c1.state.rules = structs.replace(c1.state.rules, ended_jobs_max=0)
        for id in jobs:
            await c1.commands.cancel(id)
        await until(lambda: not c1.state.jobs)
        assert len(c1.state.environments) == 0
        for id in jobs:  # the second one names the record of the first
            assert (await c1.commands.environment(id)).exported == EXPORTED
            assert (await c1.commands.job(id)).exported == sorted(EXPORTED)
        store = await backend.store()
        bodies = [await store.history(id) or b"" for id in jobs]
        assert [bool(environments_of(body).sealed) for body in bodies] == [True, False]
        assert not any(b"tops3cret" in body for body in bodies)
