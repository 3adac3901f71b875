"""`phalanx apply` of Kubernetes manifests that were applied before, and `plan` of members of a gang that waits."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from phalanx.coordinator.main import Coordinator
from phalanx.core.cluster.inputs import Drain
from phalanx.core.model.job import Job
from tests.support.fake_client import Cli
from tests.unit.cli.test_drafts import As, a_file, become, here, jobs_of, loop
from tests.unit.manifests.documents import MEMBER, Doc, a_batch_job, a_jobset, a_pod, a_podgroup, a_replicated

__all__ = ["become", "here", "loop"]  # fixtures


def ids(here: Coordinator) -> list[str]:
    """The numbers of the jobs that have not ended."""
    return [str(job.arrival) for job in here.leadership.state.jobs.values() if not job.is_over]


def job_of(here: Coordinator, number: str) -> Job:
    state = here.leadership.state
    return state.jobs[state.names.numbers[int(number)]].job


def close_nodes(here: Coordinator, loop: asyncio.AbstractEventLoop) -> None:
    """From now on all jobs wait, so that a cancelled one is over at once."""
    drains = [Drain(name, "test") for name in here.leadership.state.nodes]
    asyncio.run_coroutine_threadsafe(here.leadership.ask([*drains]), loop).result(10)


def a_gang(away: Path, least: int = 2, count: int = 2) -> list[str]:
    """The files of a PodGroup and its pods."""
    pods = [a_file(away, f"p{n}.yaml", a_pod(f"p{n}", gang="g")) for n in range(1, count + 1)]
    return [a_file(away, "group.yaml", a_podgroup("g", least)), *pods]


def options(files: list[str]) -> list[str]:
    return [word for file in files for word in ("-f", file)]


def test_a_live_gang_applied_again_file_by_file_or_at_once_stays_one(
    cli: Cli, here: Coordinator, become: As, away: Path, monkeypatch: pytest.MonkeyPatch
):
    become("alice")
    files = a_gang(away)
    for file in files:
        assert cli("apply", "-f", file).code == 0
    (id,) = ids(here)
    elsewhere = away / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for given in ([files[0]], [files[1]], [files[2]], files, files[1:]):
        said = cli("apply", *options(given), "-o", "name")
        assert (said.code, said.out.split()) == (0, [id]), said.err
        assert f"unchanged: g was applied before, it is job {id}" in said.err
        assert "waits for members" not in said.err
    assert jobs_of(here) == [("alice", 2)]


@pytest.mark.parametrize(
    "document",
    [a_pod("p"), a_batch_job(completions=2, parallelism=2), a_jobset(a_replicated(replicas=2))],
    ids=["Pod", "Job", "JobSet"],
)
def test_what_is_applied_again_is_unchanged_until_it_is_over(
    cli: Cli, here: Coordinator, loop: asyncio.AbstractEventLoop, become: As, away: Path, document: Doc
):
    close_nodes(here, loop)
    client = become("alice")
    file = a_file(away, "it.yaml", document)
    assert cli("apply", "-f", file).code == 0
    (id,) = ids(here)
    said = cli("apply", "-f", file, "-o", "json")
    assert (said.code, ids(here)) == (0, [id])
    assert json.loads(said.out)["jobs"][0]["unchanged"] is True
    become("bob")
    assert cli("apply", "-f", file).code == 0  # names are each user's own
    assert len(ids(here)) == 2
    become("alice")
    client.cancel(id)
    assert len(ids(here)) == 1
    assert cli("apply", "-f", file).code == 0
    assert len(ids(here)) == 2


def test_what_is_changed_is_refused_and_nothing_of_the_call_is_submitted(
    cli: Cli, here: Coordinator, become: As, away: Path
):
    become("alice")
    file = a_file(away, "it.yaml", a_batch_job("train"))
    cli("apply", "-f", file)
    (id,) = ids(here)
    a_file(away, "it.yaml", a_batch_job("train", command="other"))
    said = cli("apply", "-f", a_file(away, "new.yaml", a_pod("new")), "-f", file)
    assert (said.code != 0, ids(here)) == (True, [id])
    assert f"Job default/train was applied before with another content (in command), as job {id}" in said.err
    assert "phalanx cancel default/train ends it" in said.err


def test_a_job_and_a_pod_of_one_name_are_two_objects(cli: Cli, here: Coordinator, become: As, away: Path):
    become("alice")
    for document in (a_pod("same"), a_batch_job("same"), a_pod("same")):
        said = cli("apply", "-f", a_file(away, "it.yaml", document))
        assert said.code == 0, said.err
    assert len(ids(here)) == 2


def test_of_generate_name_each_is_another(cli: Cli, here: Coordinator, become: As, away: Path):
    become("alice")
    pod = a_pod("x")
    del pod["metadata"]["name"]
    pod["metadata"]["generateName"] = "many-"
    for _ in range(2):
        assert cli("apply", "-f", a_file(away, "it.yaml", pod)).code == 0
    assert len(ids(here)) == 2


def test_native_jobs_are_as_many_as_are_applied(cli: Cli, here: Coordinator, become: As, away: Path):
    become("alice")
    file = a_file(away, "job.yaml", {"name": "train", "command": ["true"]})
    for _ in range(2):
        assert cli("apply", "-f", file).code == 0
    assert len(ids(here)) == 2


def test_a_late_member_is_told_that_its_gang_has_started_or_ended(
    cli: Cli, here: Coordinator, loop: asyncio.AbstractEventLoop, become: As, away: Path
):
    become("alice")
    *files, late = a_gang(away, count=3)
    assert cli("apply", *options(files)).code == 0
    (id,) = ids(here)
    for given in ([late], [files[0], late], [*files, late]):
        said = cli("apply", *options(given))
        assert (said.code != 0, ids(here)) == (True, [id])
        assert f"default/g has started as job {id}, and takes no more members: Pod default/p3" in said.err
        assert "phalanx cancel default/g ends it" in said.err
    close_nodes(here, loop)
    client = become("bob")
    assert cli("apply", *options(files)).code == 0
    (own,) = set(ids(here)) - {id}
    said = cli("apply", "-f", late)
    assert f"default/g has all its members, and waits to start, as job {own}" in said.err
    client.cancel(own)
    said = cli("apply", "-f", late)
    assert said.code == 2
    assert f"gang default/g has ended as job {own} (Cancelled)" in said.err
    assert cli("apply", *options(files)).code == 0
    assert len(ids(here)) == 2


def test_members_that_wait_are_unchanged_too(cli: Cli, here: Coordinator, become: As, away: Path):
    become("alice")
    group, pod, _ = a_gang(away)
    assert cli("apply", "-f", group, "-f", pod).code == 0
    (id,) = ids(here)
    for given in ([group], [pod], [group, pod]):
        said = cli("apply", *options(given))
        assert (said.code, ids(here)) == (0, [id]), said.err
        assert f"unchanged: g was applied before, it is job {id}" in said.err
        assert "waits for members: default/g needs 2 members and has 1" in said.err
    draft = job_of(here, id).draft
    assert draft is not None
    assert draft.version == 0


def test_a_workload_takes_the_place_of_its_podgroup(cli: Cli, here: Coordinator, become: As, away: Path):
    become("alice")
    group = a_file(away, "group.yaml", a_podgroup("g", 2))
    assert cli("apply", "-f", group).code == 0
    (id,) = ids(here)
    work = a_batch_job("work", completions=2, parallelism=2)
    work["spec"]["template"]["metadata"] = {"labels": {MEMBER: "g"}}
    both = ["-f", group, "-f", a_file(away, "work.yaml", work)]
    for _ in range(2):
        said = cli("apply", *both)
        assert (said.code, ids(here)) == (0, [id]), said.err
    assert job_of(here, id).draft is None


def test_a_plan_reads_what_was_applied_of_the_gang_before(
    cli: Cli, here: Coordinator, become: As, away: Path
):
    become("alice")
    group, *pods = a_gang(away, least=3, count=4)
    assert cli("apply", *options([group, pods[0]])).code == 0
    for given in ([pods[1]], [group, pods[1]]):
        said = cli("plan", *options(given))
        assert (said.code, "default/g needs 3 members and has 2" in said.out) == (3, True), said
    said = cli("plan", *options(pods[1:3]))
    assert (said.code, "default/g would start now: 3 tasks" in said.out) == (0, True), said
    assert "already" not in said.err
    cli("apply", *options(pods[1:3]))
    (id,) = ids(here)
    said = cli("plan", *options([group, *pods[:3]]))
    assert f"default/g is job {id} already: it would not be started again" in said.err
    for given in ([pods[3]], [group, *pods]):
        said = cli("plan", *options(given))
        assert said.code != 0
        assert (id in said.out + said.err, "takes no more" in said.out + said.err) == (True, True), said
    assert ids(here) == [id]


def test_a_gang_that_waits_for_members_counts_those_that_have_come(
    cli: Cli, here: Coordinator, become: As, away: Path
):
    become("alice")
    group, *pods = a_gang(away, least=3, count=3)
    cli("apply", "-f", group)
    (id,) = ids(here)
    listed = cli("ps").out.splitlines()
    assert (listed[1].startswith(f"{id} "), listed[1].rstrip().endswith("true")) == (True, False)
    for there, pod in enumerate([None, *pods[:2]]):
        if pod is not None:
            cli("apply", "-f", pod)
        (row,) = cli("gang", "list").out.splitlines()[1:]
        assert row.split()[:5] == [id, "g", "Pending", f"0/{there}", "3"]
        for command in (("gang", "show", "default/g"), ("show", "default/g")):
            said = cli(*command)
            assert f"Pending, {there} of 3 members applied" in said.out, said
        said = cli("why", "default/g")
        assert (said.out.startswith(f"default/g ({id})"), "default/p" in said.out) == (True, False), said
        assert f"default/g needs 3 members and has {there}" in said.out
    cli("apply", "-f", pods[2])
    (row,) = cli("gang", "list").out.splitlines()[1:]
    assert row.split()[3:5] == ["3/3", "3"]
