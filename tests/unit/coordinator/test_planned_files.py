"""Plans of files as text: what is read from them, where a refusal points, and what is not applied."""

from __future__ import annotations

import pytest

from phalanx.api.schema.apply import PlanFile, PlanFilesRequest, PlanReply
from phalanx.errors import BadRequest, PhalanxError
from tests.unit.coordinator.test_declarations import a_coordinator, anyio_backend

pytestmark = pytest.mark.anyio
__all__ = ["anyio_backend"]

TRAIN = "name: train\ngang: true\ngroups:\n- {tasks: 2, gpus: 8, command: [torchrun, train.py]}\n"


async def planned(*texts: str, names: tuple[str, ...] = ("job.yaml", "more.yaml")) -> PlanReply:
    files = [PlanFile(name, text) for name, text in zip(names, texts, strict=False)]
    async with a_coordinator() as coordinator:
        reply = await coordinator.commands.plan_files(PlanFilesRequest(files), "ada")
        assert not coordinator.leadership.state.jobs
        return reply


async def refused(text: str) -> str:
    with pytest.raises(PhalanxError) as caught:
        await planned(text)
    return caught.value.detail


async def test_the_jobs_of_a_file_are_placed_and_named_as_in_the_file():
    reply = await planned(TRAIN)
    assert (reply.exit, len(reply.placements), reply.evictions) == (0, 2, [])
    assert {each.task.partition(".")[0] for each in reply.placements} == {"train"}
    assert sorted(each.devices for each in reply.placements) == [list(range(8))] * 2


async def test_several_files_are_one_question():
    other = '{"name": "other", "groups": [{"gpus": 9, "command": ["true"]}]}'
    reply = await planned(TRAIN, other, names=("job.yaml", "other.json"))
    assert reply.exit == 4
    assert {each.job for each in reply.reasons} == {"other"}
    assert len(reply.placements) == 2


async def test_a_refusal_points_to_file_and_line():
    assert (await refused("groups:\n- {gpsu: 1, command: [x]}\n")).startswith("job.yaml:2: ")
    assert (await refused(TRAIN + "queue: nowhere\n")).startswith("job.yaml:1: queue: ")
    assert "job.yaml" in await refused("groups: [\n")
    assert (await refused("")).startswith("job.yaml: there is nothing in it")


async def test_a_file_of_very_many_documents_is_refused_before_all_are_read():
    assert "too many documents, at most 2000 are read" in await refused("a: 1\n---\n" * 5000)


async def test_what_a_file_declares_besides_is_told_and_not_applied():
    layers = "apiVersion: scheduling.koordinator.sh/v1alpha1\nkind: ClusterNetworkTopology\n"
    layers += "metadata: {name: default}\nspec: {networkTopologySpec: [{labelKey: [rack], topologyLayer: RackLayer},"
    layers += " {parentTopologyLayer: RackLayer, topologyLayer: NodeTopologyLayer}]}\n"
    reply = await planned(TRAIN, layers)
    assert any("not applied" in each for each in reply.warnings)


@pytest.mark.parametrize(
    ("files", "field"),
    [
        ([], "files"),
        ([PlanFile("a.yaml", TRAIN)] * 21, "files"),
        ([PlanFile("", TRAIN)], "files[0].name"),
        ([PlanFile("a\x1b.yaml", TRAIN)], "files[0].name"),
    ],
)
async def test_questions_that_are_none_are_refused(files: list[PlanFile], field: str):
    async with a_coordinator() as coordinator:
        with pytest.raises(BadRequest) as caught:
            await coordinator.commands.plan_files(PlanFilesRequest(files), "ada")
    assert caught.value.detail.startswith(f"{field}:")
