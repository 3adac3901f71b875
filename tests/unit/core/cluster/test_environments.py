"""Environments of jobs: each kept once, as long as a job names it, and in the history with the record of such a job."""

from __future__ import annotations

from msgspec import structs

from phalanx.core.cluster import environments as table
from phalanx.core.cluster.decision import Accepted, Answer, Refused
from phalanx.core.cluster.environment_events import EnvironmentKept
from phalanx.core.cluster.environments import HistoryEnvironments
from phalanx.core.cluster.events import Event, JobForgotten, decode, encode
from phalanx.core.cluster.history_image import environments_of
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Cancel, Submit, SubmitWorkflow, Tick
from phalanx.core.cluster.state import ClusterState, Timers
from phalanx.core.cluster.transitions import apply
from phalanx.core.cluster.workflow_events import WorkflowForgotten
from phalanx.core.model.job import Job
from tests.support.builders import Cluster, a_cluster, a_job
from tests.support.workflow_cluster import a_workflow

SEALED = b"sealed bytes"


def with_environment(digest: str) -> Job:
    return in_environment(a_job(user="ada"), digest)


def in_environment(job: Job, digest: str) -> Job:
    command = structs.replace(job.groups[0].command, environment=digest)
    return structs.replace(job, groups=(structs.replace(job.groups[0], command=command),))


def submit(cluster: Cluster, digest: str, sealed: bytes | None = SEALED) -> tuple[Job, Answer | None]:
    job = with_environment(digest)
    given = {} if sealed is None else {digest: sealed}
    (answer,) = cluster.give(Submit(job, environments=given))
    return job, answer


def events(cluster: Cluster) -> list[Event]:
    return [event for turn in cluster.turns for event in turn.events]


def kept(cluster: Cluster) -> list[EnvironmentKept]:
    return [event for event in events(cluster) if isinstance(event, EnvironmentKept)]


def test_an_environment_is_written_once_for_all_jobs_that_name_it():
    cluster = a_cluster()
    for _ in range(3):
        assert isinstance(submit(cluster, "d1")[1], Accepted)
    submit(cluster, "d2")
    assert [(each.digest, each.user, each.sealed) for each in kept(cluster)] == [
        ("d1", "ada", SEALED),
        ("d2", "ada", SEALED),
    ]
    found = cluster.state.environments.get("d1")
    assert found is not None
    assert found.jobs == 3


def test_an_environment_comes_before_its_job_in_the_same_batch():
    cluster = a_cluster()
    submit(cluster, "d1")
    assert [type(event).__name__ for event in cluster.turns[-1].events] == ["EnvironmentKept", "JobSubmitted"]
    assert decode(encode(cluster.turns[-1].events)) == cluster.turns[-1].events


def test_a_job_whose_environment_nobody_has_is_refused():
    cluster = a_cluster()
    _, answer = submit(cluster, "d1", None)
    assert isinstance(answer, Refused)
    assert answer.reason.code == "EnvironmentGone"
    submit(cluster, "d1")
    assert isinstance(submit(cluster, "d1", None)[1], Accepted)  # it is in memory: naming it is enough


def test_the_environments_of_a_user_have_a_limit(monkeypatch):
    monkeypatch.setattr(table, "USER_BYTES_MAX", 2 * len(SEALED))
    cluster = a_cluster()
    submit(cluster, "d1")
    submit(cluster, "d2")
    _, answer = submit(cluster, "d3")
    assert isinstance(answer, Refused)
    assert (answer.reason.code, answer.kind) == ("EnvironmentsFull", "too_many")
    assert isinstance(submit(cluster, "d2")[1], Accepted)


def test_the_image_has_environments_and_a_replay_gives_the_same():
    cluster = a_cluster()
    submit(cluster, "d1")
    submit(cluster, "d1")
    image = encode_state(cluster.state)
    again = decode_state(image, Timers())
    assert encode_state(again) == image
    found = again.environments.get("d1")
    assert found is not None
    assert (found.sealed, found.jobs) == (SEALED, 2)
    replayed = ClusterState(Timers())
    replayed.epoch = 1
    for event in events(cluster):
        apply(replayed, event)
    assert encode_state(replayed) == image


def test_an_environment_leaves_memory_with_the_last_job_that_names_it():
    state = ClusterState(Timers())
    first, second = with_environment("d1"), with_environment("d1")
    environments = state.environments
    environments.keep("d1", "ada", SEALED)
    for job in (first, second):
        environments.add_job(job)
    environments.drop_job(first)
    assert environments.get("d1") is not None
    environments.drop_job(second)
    assert environments.get("d1") is None
    assert environments.why_not("ada", ["d1"], {}) is not None


def test_an_environment_is_kept_as_long_as_a_workflow_names_it():
    """Also while none of its stages is a job, and in an image of the state."""
    flow = a_workflow("stages: [{name: a, command: 'true'}, {name: b, needs: [a], command: 'true'}]")
    stages = tuple(structs.replace(each, job=in_environment(each.job, "d1")) for each in flow.stages)
    flow = structs.replace(flow, stages=stages)
    cluster = a_cluster()
    [refused] = cluster.give(SubmitWorkflow(flow, allow_infeasible=True))
    assert isinstance(refused, Refused)
    assert refused.reason.code == "EnvironmentGone"
    [answer] = cluster.give(SubmitWorkflow(flow, allow_infeasible=True, environments={"d1": SEALED}))
    assert isinstance(answer, Accepted)
    assert [each.digest for each in kept(cluster)] == ["d1"]
    cluster.give(Tick())  # its first stage becomes a job
    found = cluster.state.environments.get("d1")
    assert found is not None
    assert found.jobs == 2
    again = decode_state(encode_state(cluster.state), Timers()).environments.get("d1")
    assert again is not None
    assert (again.sealed, again.jobs) == (SEALED, 2)
    [job] = cluster.state.jobs
    for event in (JobForgotten(at=1.0, job=job), WorkflowForgotten(at=1.0, workflow=flow.id)):
        assert cluster.state.environments.get("d1") is not None
        apply(cluster.state, event)
    assert cluster.state.environments.get("d1") is None


def test_the_history_has_an_environment_in_one_record_of_many(monkeypatch):
    monkeypatch.setattr(table, "RECORDS_PER_COPY", 2)
    environments = ClusterState(Timers()).environments
    environments.keep("d1", "ada", SEALED)
    jobs = [with_environment("d1") for _ in range(4)]
    for job in (*jobs, with_environment("d1")):  # one stays
        environments.add_job(job)
    records: list[HistoryEnvironments | None] = []
    for job in jobs:
        records.append(environments.of_record(job))
        environments.note_record(job)
        environments.drop_job(job)
    copy, other = HistoryEnvironments({"d1": SEALED}), HistoryEnvironments({}, {"d1": jobs[0].id})
    assert records == [copy, other, other, copy]
    assert environments.of_record(a_job()) is None


def test_a_record_of_the_history_keeps_the_environment():
    cluster = Cluster(Timers(ended_jobs_max=0))
    job, _ = submit(cluster, "d1")
    cluster.give(Cancel(job.id))
    cluster.give(Tick())
    written = [record for turn in cluster.turns for record in turn.history]
    assert any(isinstance(event, JobForgotten) for event in events(cluster))
    assert environments_of(written[0].body).sealed == {"d1": SEALED}
    assert cluster.state.environments.get("d1") is None
