"""The layers of a submission against those of the network: warnings, what is meant, what to write instead."""

from __future__ import annotations

import pytest

from phalanx.api.schema.cluster import LayerSpec, TopologySpec
from phalanx.api.schema.groupspec import GatherSpec
from phalanx.api.schema.submission import SubmitRequest
from phalanx.core.model.job import Gather
from phalanx.errors import NeverFits
from tests.unit.coordinator.test_declarations import ROWS, a_coordinator

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def options_of(layer: str, *, must: bool = False, gpus: int = 8, tasks: int = 2) -> SubmitRequest:
    return SubmitRequest(command=["true"], tasks=tasks, gpus=gpus, gather=[GatherSpec(layer, must)])


async def test_a_preference_for_an_unknown_layer_is_told():
    async with a_coordinator() as here:
        reply = await here.commands.submit(options_of("racks"), "ada")
        (warning,) = reply.warnings
        assert warning.startswith("gather[0].layer: 'racks': no layer has this name (layers: cluster, spine,")
        assert warning.endswith("did you mean rack?")


async def test_a_preference_for_a_known_layer_needs_no_word():
    async with a_coordinator() as here:
        assert (await here.commands.submit(options_of("rack"), "ada")).warnings == []


async def test_a_layer_in_the_wrong_letters_is_the_one_that_must_be_meant():
    async with a_coordinator() as here:
        await here.commands.set_topology(ROWS, "ada")
        reply = await here.commands.submit(options_of("Row", must=True), "ada")
        assert reply.warnings == ["gather[0].layer: 'Row': it is read as row, the layer of this network"]
        gang = here.leadership.state.jobs[reply.task_ids[0]].job.gang
        assert gang is not None
        assert gang.gather == (Gather("row", must=True),)


async def test_who_misspells_a_layer_that_must_be_is_told_the_nearest():
    async with a_coordinator() as here:
        await here.commands.set_topology(ROWS, "ada")
        with pytest.raises(NeverFits, match=r"did you mean row\?") as refused:
            await here.commands.submit(options_of("rov", must=True), "ada")
        assert refused.value.hint == "it would fit in one row instead of one rov"


async def test_a_layer_that_is_like_no_other_is_not_replaced_by_one():
    async with a_coordinator() as here:
        with pytest.raises(NeverFits) as refused:
            await here.commands.submit(options_of("galaxy", must=True, gpus=1), "ada")
        assert refused.value.reason == "MustGatherImpossible"
        assert refused.value.hint.startswith("write one of cluster, spine")


@pytest.mark.parametrize("tasks", [1, 2])
async def test_labels_that_no_node_carries_are_no_wrong_request_but_one_that_never_fits(tasks: int):
    async with a_coordinator() as here:
        options = SubmitRequest(command=["true"], tasks=tasks, labels={"disk": "ssd"})
        with pytest.raises(NeverFits, match="disk=ssd") as refused:
            await here.commands.submit(options, "ada")
        assert refused.value.detail.startswith("No node can hold")
        assert refused.value.hint == "phalanx nodes -o wide lists the labels of each node"


@pytest.mark.parametrize("tasks", [1, 2])
async def test_isolation_that_no_node_gives_never_fits_and_the_hint_says_where_to_look(tasks: int):
    async with a_coordinator() as here:
        options = SubmitRequest(command=["true"], tasks=tasks, require_isolation=True)
        with pytest.raises(NeverFits, match="cannot limit tasks to their") as refused:
            await here.commands.submit(options, "ada")
        assert refused.value.reason == "NotIsolated"
        assert "phalanx node show" in refused.value.hint


async def test_a_gang_that_cannot_be_divided_as_it_must_never_fits():
    async with a_coordinator() as here:
        rule = [GatherSpec("row", must=True, multiple=4)]
        await here.commands.set_topology(ROWS, "ada")
        with pytest.raises(NeverFits):
            await here.commands.submit(SubmitRequest(command=["true"], tasks=3, gather=rule), "ada")


async def test_a_layer_may_be_named_by_its_label():
    async with a_coordinator() as here:
        await here.commands.set_topology(TopologySpec([LayerSpec("BlockLayer", ["row"])]), "ada")
        reply = await here.commands.submit(options_of("row", must=True), "ada")
        assert reply.warnings == [
            "gather[0].layer: 'row': it is read as BlockLayer, the layer of this network"
        ]


async def test_a_node_that_is_not_there_is_answered_with_where_the_nodes_are_listed():
    async with a_coordinator() as here:
        for asked in (SubmitRequest(["true"], nodes=["n9"]), SubmitRequest(["true"], exclude=["n9"])):
            with pytest.raises(NeverFits, match="not registered: n9") as wrong:
                await here.commands.submit(asked, "ada")
            assert wrong.value.hint.startswith("phalanx nodes lists the nodes")
