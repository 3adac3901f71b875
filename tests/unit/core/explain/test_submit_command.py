"""The line that submits a job again makes that job, and nothing is offered that would make another one."""

from __future__ import annotations

import shlex

import pytest
import typer
from msgspec import structs
from typer.testing import CliRunner

from phalanx.api.schema.groupspec import GatherSpec
from phalanx.api.schema.submission import SubmitRequest, to_jobs
from phalanx.cli.submit import SubmitOptions, takes_options
from phalanx.coordinator.why import why_reply
from phalanx.core.explain.change import Asker
from phalanx.core.explain.submit_command import LINE_MAX, submit_line
from phalanx.core.model.job import Command, Job, Success
from phalanx.core.model.orders import Status
from tests.support.builders import Cluster, a_cluster, a_gang, a_group, a_job


def made(request: SubmitRequest) -> Job:
    ((_, job),), failed = to_jobs(request, new_id=lambda: "x", now=0.0, user="ada", default_retries=3)
    assert not failed
    return job


def read(line: str) -> SubmitRequest:
    """What `phalanx` makes of a line that is typed into a shell."""
    words, seen = shlex.split(line), list[SubmitRequest]()
    assert words[:2] == ["phalanx", "submit"]
    app = typer.Typer()

    @takes_options
    def submit(ctx: typer.Context, options: SubmitOptions) -> None:
        seen.append(options.request())

    app.command()(submit)
    answer = CliRunner().invoke(app, words[2:])
    assert answer.exit_code == 0, answer.output
    return seen[0]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"command": [], "shell": 'echo "it\'s" $HOME; exit 3'},
        {"command": ["python", "train.py", "--lr", "0.1", "a b"], "cwd": "/data/my runs"},
        {"cores": 0.5, "memory": "16GiB", "gpus": 2, "gpu_type": "h100", "gpu_memory": "80GiB"},
        {"targets": ["n1:0::0,1"], "cores": 0},
        {"targets": ["n1"], "gpus": 1, "labels": {"disk": "ssd", "zone": "a"}},
        {"require_isolation": True, "labels": {"disk": "ssd"}},
        {"split_output": True},
        {"array": "1-100%4", "name": "sweep", "queue": "lab", "priority": 7},
        {"tasks": 4, "min": 2, "gang_wait": "90s", "max_retries": 1},
        {"tasks": 4, "gather": [GatherSpec("rack", True), GatherSpec("pod"), GatherSpec("row", False, 2)]},
        {"time_limit": "1.5s", "grace": 0, "max_retries": 0, "min_run": 60, "evictable": False},
        {"preemption": "never", "tags": {"app": "train"}, "time_limit": 1_000_000},
    ],
)
def test_the_line_makes_the_same_job(fields: dict[str, object]):
    job = made(SubmitRequest(**{"command": ["true"], "cwd": "/data", **fields}))  # type: ignore[arg-type]
    line = submit_line(job)
    assert line is not None
    assert made(read(line)) == job


@pytest.mark.parametrize(
    "job",
    [
        made(SubmitRequest(["true"], cwd="/data", env={"TOKEN": "secret"})),
        made(SubmitRequest(["true"])),
        made(SubmitRequest(["true", "x" * LINE_MAX], cwd="/data")),
        made(SubmitRequest(["sh", "-c", "one\ntwo"], cwd="/data")),
        structs.replace(made(SubmitRequest(["true"], cwd="/data")), success=Success(any=True)),
        structs.replace(made(SubmitRequest(["true"], cwd="/data")), object="default/a"),
        a_gang(a_group(2), a_group(1, name="other")),
    ],
    ids=["environment", "no folder", "long", "two lines", "success", "manifest", "groups"],
)
def test_what_options_do_not_say_is_not_offered(job: Job):
    assert submit_line(job) is None


def in_folder(job: Job) -> Job:
    group = structs.replace(job.groups[0], command=Command(("/bin/true",), cwd="/data"), replicas=1)
    return structs.replace(job, groups=(group,))


def fix_of(cluster: Cluster, job: Job, asker: Asker) -> tuple[str, str]:
    state, memory = cluster.state, cluster.engine.memory
    fix = why_reply(state, state.jobs[job.id], None, cluster.now, memory=memory, asker=asker).fix
    assert fix is not None
    return fix.text, fix.command


def test_what_waits_is_to_be_cancelled_before_it_is_submitted_so():
    cluster = a_cluster(n1={"cores": 8})
    cluster.submit(a_job(cores=5, user="bo"))
    job = in_folder(a_gang(a_group(4), user="ada"))
    cluster.submit(job)
    assert cluster.status(job) == Status.PENDING
    told = "it would start now with a minimum of 3 instead of 4"
    line = "phalanx submit --tasks 4 --min 3 --cwd /data -- /bin/true"
    assert fix_of(cluster, job, Asker("ada")) == (
        f"{told} (cancel it, then submit it so)",
        f"phalanx cancel {job.id} && {line}",
    )
    others = f"{told} (its user would have to cancel it and submit it so)"
    assert fix_of(cluster, job, Asker("op", controls_all=True, operates=True)) == (others, "")
    assert fix_of(cluster, job, Asker()) == (others, "")


def test_what_cannot_be_said_in_one_line_is_cancelled_first():
    cluster = a_cluster(n1={"cores": 8})
    cluster.submit(a_job(cores=5, user="bo"))
    job = a_job(cores=4, user="ada")
    cluster.submit(job)
    assert fix_of(cluster, job, Asker("ada")) == (
        "it would start now with 3 cores instead of 4 (cancel it, then submit it so)",
        f"phalanx cancel {job.id}",
    )


def test_who_is_submitted_again_stands_behind_the_others():
    cluster = a_cluster(n1={"cores": 8})
    cluster.submit(a_job(cores=5))
    first, second = a_job(cores=4), a_job(cores=3)
    cluster.submit(first)
    state, memory = cluster.state, cluster.engine.memory
    assert fix_of(cluster, first, Asker(""))[0].startswith("it would start now with 3 cores")
    cluster.submit(second)  # it would take the 3 cores that are free
    reply = why_reply(state, state.jobs[first.id], None, cluster.now, memory=memory)
    assert reply.status == "Pending"
    assert reply.fix is None or not reply.fix.change


def test_nothing_else_is_asked_for_where_some_of_it_runs():
    cluster = a_cluster(n1={"cores": 8})
    job = a_job(array="1-3", cores=3)
    cluster.submit(job)
    assert cluster.status(job, 2) == Status.PENDING
    state, memory = cluster.state, cluster.engine.memory
    fix = why_reply(state, state.jobs[job.id], 2, cluster.now, memory=memory).fix
    assert fix is None or not fix.change
