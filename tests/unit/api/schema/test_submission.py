"""How a SubmitRequest becomes jobs, or a refusal that names the field."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from phalanx.api.schema.documents import FailedTarget
from phalanx.api.schema.fields import check_number
from phalanx.api.schema.groupspec import GatherSpec
from phalanx.api.schema.submission import VPS_RETRIES, SubmitRequest, to_jobs
from phalanx.core.model.containers import CONTAINERS, MOUNTS, ROOTFS
from phalanx.core.model.job import Gang, Gather, Job, Restart, Vps
from phalanx.core.model.ledger import Ledger
from phalanx.core.model.resources import ISOLATED, Capacity, Device, Grant, Target
from phalanx.errors import BadRequest, PhalanxError, Unprocessable


def submitted(**fields: Any) -> tuple[list[tuple[str | None, Job]], list[FailedTarget]]:
    ids = (f"id{number}" for number in itertools.count(1))
    request = SubmitRequest(**({} if "shell" in fields else {"command": ["true"]}) | fields)
    return to_jobs(request, new_id=lambda: next(ids), now=7.0, user="ada", default_retries=3)


def the_job(**fields: Any) -> Job:
    ((_, job),), failed = submitted(**fields)
    assert failed == []
    return job


def refusal(**fields: Any) -> PhalanxError:
    with pytest.raises(PhalanxError) as caught:
        submitted(**fields)
    return caught.value


def test_a_plain_command_becomes_one_job():
    job = the_job(command=["echo", "hi"])
    assert (job.id, job.batch, job.user, job.submitted_at) == ("id1", "id1", "ada", 7.0)
    assert job.groups[0].command.argv == ("echo", "hi")
    assert (job.max_retries, job.grace_s, job.time_limit_s, job.groups[0].request.cores) == (3, 5.0, None, 1)


def test_a_shell_string_is_one_argument():
    assert the_job(shell="echo $HOME; exit").groups[0].command.argv == ("/bin/sh", "-c", "echo $HOME; exit")


def test_each_target_gets_a_job_of_one_batch():
    jobs, failed = submitted(targets=["n1", "n2:1", "n1::0,1"], cores=2)
    assert [(text, job.id, job.batch) for text, job in jobs] == [
        ("n1", "id1", "id1"),
        ("n2:1", "id2", "id1"),
        ("n1::0,1", "id3", "id1"),
    ]
    assert [job.groups[0].request.gpus for _, job in jobs] == [0, 0, 2]
    assert jobs[2][1].groups[0].request.target == Target("n1", None, (0, 1))
    assert failed == []


def test_a_bad_target_refuses_only_itself_and_the_batch_is_the_first_job_created():
    jobs, failed = submitted(targets=["n1:x", "n1", "n2"])
    assert [job.batch for _, job in jobs] == ["id1", "id1"]
    assert [(each.target, each.reason) for each in failed] == [("n1:x", "Misconfigured")]
    assert "position 3" in failed[0].detail


@pytest.mark.parametrize("text", ["n1:-1", "n1:x", "n1:", "n1:0:9", "", ":0", "n1::", "-n1"])
def test_targets_the_grammar_refuses(text: str):
    jobs, failed = submitted(targets=[text])
    assert jobs == []
    assert "invalid target format" in failed[0].detail


def test_an_array_goes_to_each_target():
    jobs, _ = submitted(targets=["n1", "n2"], array="1-3%2")
    assert [job.tasks for _, job in jobs] == [3, 3]


def test_required_gpus_name_devices_of_their_target():
    jobs, _ = submitted(targets=["n1", "n2"], required_gpus=[[1, 0], []])
    assert jobs[0][1].groups[0].request.target == Target("n1", None, (1, 0))
    assert [job.groups[0].request.gpus for _, job in jobs] == [2, 0]


def test_the_same_devices_may_be_said_twice():
    jobs, _ = submitted(targets=["n1::0,1"], required_gpus=[[1, 0]], gpus=2)
    assert jobs[0][1].groups[0].request.gpus == 2


def test_an_empty_list_of_required_gpus_counts_as_none():
    assert the_job(required_gpus=[]).groups[0].request.gpus == 0


def test_a_number_of_gpus_needs_no_target():
    assert the_job(gpus=2, gpu_type="h100", gpu_memory="80GiB").groups[0].request.gpu_memory_bytes == 80 << 30


def test_a_type_of_gpu_knows_no_case():
    request = the_job(gpus=1, gpu_type="H100").groups[0].request
    node = Ledger("n1", Capacity(8, 0, devices=(Device(0, "h100"),)))
    assert (request.gpu_type, isinstance(node.fit(request), Grant)) == ("h100", True)
    foreign = Ledger(
        "n1", Capacity(8, 0, devices=(Device(0, "MI-300X"),))
    )  # as a runner of another program may list it
    assert isinstance(foreign.fit(the_job(gpus=1, gpu_type="mi-300x").groups[0].request), Grant)


def test_a_type_of_gpu_alone_is_answered_with_the_number_that_is_missing():
    with pytest.raises(BadRequest) as refused:
        the_job(gpu_type="A100")
    assert refused.value.hint == "write gpus: 1; on the command line --gpus 1 --gpu-type A100"


def test_sizes_and_durations_are_read():
    job = the_job(memory="16GiB", time_limit="1h30m", grace="2s")
    assert (job.groups[0].request.memory_bytes, job.time_limit_s, job.grace_s) == (16 << 30, 5400.0, 2.0)


@pytest.mark.parametrize("grace", [0, 0.0, "0", "0s"])
def test_no_grace_at_all_is_possible(grace: float | str):
    assert the_job(grace=grace).grace_s == 0.0


def test_attempts_count_the_first_run():
    assert the_job(max_attempts=1).max_retries == 0
    assert the_job(max_retries=0).max_retries == 0


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"command": []}, "command: nothing to run"),
        ({"command": [""]}, "command: nothing to run"),
        ({"shell": ""}, "shell: nothing to run"),
        ({"command": ["a"], "shell": "b"}, "shell: given beside command: give one of them"),
        ({"command": ["a\0b"]}, "command: 'a\\x00b' holds a NUL byte"),
        ({"command": ["\ud800"]}, "command: '\\ud800' is not text"),
        ({"command": ["x"] * 4097}, "command: 4097 are too many, at most 4096"),
        ({"command": ["x" * 131_072]}, "command: 131072 bytes are too many, at most 131071"),
        ({"command": ["é" * 65_536]}, "command: 131072 bytes are too many"),
        ({"command": ["x" * 100_000] * 11}, "command: 1100000 bytes in all are too many"),
        ({"env": {str(n): "" for n in range(1001)}}, "env: 1001 are too many"),
        ({"env": {"": "x"}}, "env: '' is not a variable name"),
        ({"env": {"A=B": "x"}}, "env: 'A=B' is not a variable name"),
        ({"env": {"1X": "2"}}, "env: '1X' is not a variable name"),
        ({"env": {"A": "\0"}}, "env['A']: 'A=\\x00' holds a NUL byte"),
        ({"env": {f"V{n}": "x" * 120_000 for n in range(9)}}, "env: 1080027 bytes in all are too many"),
        ({"cwd": "here"}, "cwd: 'here' is not an absolute path"),
        ({"cwd": "/\0"}, "cwd: '/\\x00' holds a NUL byte"),
        ({"name": "-x"}, "name: '-x' is not a name"),
        ({"name": "Ünicode"}, "name: 'Ünicode' is not a name"),
        ({"queue": ""}, "queue: '' is not a name"),
        ({"memory": "much"}, "memory: 'much' is not a size"),
        ({"memory": 10}, "memory: 10 without a unit is 10 bytes"),
        (
            {"gpus": 1, "gpu_memory": 80},
            "gpu_memory: 80 without a unit is 80 bytes, and the least for a device",
        ),
        ({"time_limit": "soon"}, "time_limit: 'soon' is not a duration"),
        ({"time_limit": "1m" * 51}, "is not a duration"),
        ({"array": "5-1"}, "array '5-1': '5-1' ends before it begins"),
        ({"request_id": ""}, "request_id: '' cannot be used"),
        ({"request_id": "a\nb"}, "request_id: 'a\\nb' cannot be used"),
        ({"gpu_type": "\x1b[31m", "gpus": 1}, "gpu_type: '\\x1b[31m' is not a device type"),
        ({"gpu_type": "h100"}, "gpu_type: given without"),
        ({"gpu_memory": "1GiB"}, "gpu_memory: given without"),
        ({"max_retries": 1, "max_attempts": 2}, "max_retries and max_attempts: give one of them"),
        ({"targets": ["n1"] * 1001}, "targets: 1001 are too many"),
        ({"required_gpus": [[0]]}, "No target node specified for GPU task is not allowed"),
        (
            {"targets": ["a", "b"], "required_gpus": [[0]]},
            "required_gpus length (1) must match targets length (2)",
        ),
        ({"targets": ["a"], "required_gpus": [[0, 0]]}, "required_gpus: [0, 0] names a device twice"),
        ({"targets": ["a::0"], "required_gpus": [[1]]}, "targets and required_gpus contradict each other"),
        ({"targets": ["a::0,1"], "gpus": 1}, "gpus: 1 contradicts target 'a::0,1' with 2 named devices"),
        ({"spread": True, "targets": ["n1"]}, "spread: it is for many nodes, and target 'n1' names one"),
        *(
            ({"spread": True, "tasks": 2, "gather": [rule]}, "gather[0]: spread asks for many nodes")
            for rule in (GatherSpec("rack"), GatherSpec("rack", True, 2), GatherSpec("node", True))
        ),
        ({"kind": "vps", "targets": ["a", "b"]}, "VPS tasks cannot be submitted to multiple targets"),
    ],
)
def test_wrong_words_are_refused_with_their_field(fields: dict[str, Any], says: str):
    error = refusal(**fields)
    assert says in error.detail
    assert isinstance(error, BadRequest)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"cores": -1}, "cores: -1 is out of range, give 0 to 65536"),
        ({"cores": 65_537}, "cores: 65537"),
        ({"cores": 10**5000}, "cores: a number of 16610 bits"),
        ({"gpus": -1}, "gpus: -1 is out of range, give 0 to 1024"),
        ({"priority": 1_000_000_001}, "priority: 1000000001"),
        ({"priority": -1_000_000_001}, "priority: -1000000001"),
        ({"memory": -1}, "memory: -1"),
        ({"time_limit": 0}, "time_limit: 0"),
        ({"time_limit": float("nan")}, "time_limit: nan"),
        ({"time_limit": float("inf")}, "time_limit: inf"),
        ({"grace": -1}, "grace: -1"),
        ({"grace": 86_401}, "grace: 86401"),
        ({"max_retries": -1}, "max_retries: -1"),
        ({"max_retries": 1001}, "max_retries: 1001"),
        ({"max_attempts": 0}, "max_attempts: 0"),
        ({"targets": ["n1"], "required_gpus": [[-1]]}, "required_gpus: -1"),
    ],
)
def test_numbers_out_of_range_are_unprocessable(fields: dict[str, Any], says: str):
    error = refusal(**fields)
    assert error.detail.startswith(says)
    assert isinstance(error, Unprocessable)


def test_a_submitted_vps_has_no_ssh_and_no_end():
    request = SubmitRequest(kind="vps", targets=["n1"])
    ((_, job),), _ = to_jobs(request, new_id=lambda: "id1", now=1.0, user="ada", default_retries=3)
    assert job.vps == Vps("disabled")
    assert (job.evictable, job.time_limit_s, job.max_retries) == (False, None, VPS_RETRIES)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"command": ["true"]}, "command: a VPS has none"),
        ({"array": "1-3"}, "array: a VPS has none"),
        ({"time_limit": 60}, "time_limit: a VPS has none"),
        ({"max_retries": 0}, "max_retries: a VPS has none"),
        (
            {"targets": ["n1", "n2"]},
            "targets: VPS tasks cannot be submitted to multiple targets, and 2 are given",
        ),
    ],
)
def test_a_vps_is_one_task_without_a_command(fields: dict[str, Any], says: str):
    request = SubmitRequest(kind="vps", **fields)
    with pytest.raises(BadRequest) as told:
        to_jobs(request, new_id=lambda: "id1", now=1.0, user="ada", default_retries=3)
    assert told.value.detail.startswith(says)


def test_what_is_not_a_number_is_out_of_every_range():
    with pytest.raises(Unprocessable):
        check_number("cores", float("nan"), 0, 1)


def test_a_refusal_shows_long_values_in_short():
    assert len(refusal(name="x" * 100_000).detail) < 300


def test_several_tasks_are_a_gang_that_restarts_whole():
    job = the_job(tasks=16, min=12, gpus=8, gather=[GatherSpec("rack", must=True)], max_retries=5)
    assert (job.tasks, job.groups[0].needed, job.groups[0].request.gpus) == (16, 12, 8)
    assert job.gang == Gang((Gather("rack", must=True),))
    assert (job.restart, job.max_retries) == (Restart(whole=True, limit=5), 0)


def test_one_task_is_no_gang():
    job = the_job()
    assert (job.gang, job.restart) == (None, Restart())


def test_whom_a_job_may_evict_and_who_may_evict_it():
    job = the_job(preemption="never", evictable=False, min_run="1h")
    assert (job.may_evict, job.evictable, job.min_run_s) == (False, False, 3600.0)


def test_labels_are_part_of_the_request():
    assert the_job(labels={"zone": "b", "disk": "ssd"}).groups[0].request.labels == (
        ("disk", "ssd"),
        ("zone", "b"),
    )


def test_isolation_is_a_label_that_is_required():
    assert the_job(labels={"zone": "b"}, require_isolation=True).groups[0].request.labels == (
        ISOLATED,
        ("zone", "b"),
    )


def test_containers_with_addresses_and_mounts_ask_for_nodes_that_can_do_that():
    plain = the_job(image="python", mounts=["/data:/data"]).groups[0].request
    assert plain.labels == (CONTAINERS, MOUNTS)
    assert the_job(image="python", network="overlay").groups[0].request.labels == (CONTAINERS, ROOTFS)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"tasks": 0}, "tasks: 0 is out of range"),
        ({"tasks": 4, "min": 5}, "min: 5 is above tasks, which is 4"),
        ({"min": 2}, "min: given for a job of one task"),
        ({"gather": [GatherSpec("rack")]}, "gather: given for a job of one task"),
        ({"gang_wait": "5m"}, "gang_wait: given for a job of one task"),
        ({"tasks": 2, "array": "1-2"}, "tasks and array"),
        ({"tasks": 2, "targets": ["n1", "n2"]}, "tasks and targets"),
        ({"tasks": 2, "no_queue": True}, "no_queue: it is for one task"),
        (
            {"tasks": 2, "gather": [GatherSpec("rack"), GatherSpec("rack")]},
            "gather[1].layer: 'rack' is named twice",
        ),
        ({"tasks": 2, "gang_wait": "soon"}, "gang_wait: 'soon' is not a duration"),
        ({"labels": {"": "x"}}, "labels: '' is not a label"),
    ],
)
def test_gangs_that_contradict_themselves_are_refused(fields: dict[str, Any], says: str):
    assert says in refusal(**fields).detail


def test_a_gang_has_a_limit_of_its_own():
    assert the_job(tasks=10_000).tasks == 10_000
    error = refusal(tasks=10_001)
    assert isinstance(error, Unprocessable)
    assert error.detail == "tasks: 10001 are too many for a gang, at most 10000 can start together"
    assert "array" in error.hint
