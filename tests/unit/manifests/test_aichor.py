"""AIchor's manifests: jobset and kuberay."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.api.schema.jobspec import RestartSpec, SuccessSpec
from tests.unit.manifests.documents import Doc, refusal, the_job, warned


def an_experiment(operator: str = "jobset", command: Any = "python main.py", **spec: Any) -> Doc:
    types = {"worker": {"count": 1}}
    return {
        "kind": "AIchorManifest",
        "apiVersion": "0.2.3",
        "spec": {"operator": operator, "command": command, "types": types} | spec,
    }


def test_types_become_groups():
    gpu = {"count": 1, "type": "gpu", "product": "NVIDIA-A100-SXM4-80GB"}
    resources = {"cpus": 5, "ramRatio": 2, "accelerators": {"gpu": gpu}}
    worker = {"count": 4, "completions": 10, "parallelisms": 2, "resources": resources}
    group = the_job(an_experiment(types={"worker": worker})).groups[0]
    assert (group.name, group.tasks, group.replicas, group.at_once) == ("worker", 40, 4, 2)
    assert (group.cores, group.memory, group.gpus, group.gpu_type) == (5, 10 * 2**30, 1, "a100")
    assert group.shell == "python main.py"


def test_completions_run_one_after_another_unless_more_are_allowed():
    assert the_job(an_experiment(types={"w": {"completions": 10}})).groups[0].at_once == 1


def test_a_number_of_failures_is_survived_evictions_among_them():
    job = the_job(an_experiment(restartPolicy={"backoffLimit": 5}))
    assert job.max_retries == 5
    assert job.restart == RestartSpec(whole=False, fails_job=True, shared=True, counts_evictions=True)
    assert the_job(an_experiment()).max_retries == 0


def test_it_is_known_without_a_kind():
    document = an_experiment()
    del document["kind"]
    assert the_job(document).groups[0].name == "worker"


def test_kuberay_is_a_gang_of_a_head_and_workers():
    types = {"workers": {"count": 3}, "head": {"count": 1}}
    document = an_experiment("kuberay", types=types, restartPolicy={"backoffLimit": 2})
    job = the_job(document)
    assert job.gang
    assert [(group.name, group.tasks) for group in job.groups] == [("head", 1), ("workers", 3)]
    assert job.groups[0].command[-1] == "ray start --head --port=6379 && python main.py"
    assert "$PET_MASTER_ADDR" in job.groups[1].command[-1]
    assert job.success == SuccessSpec(groups=["head"])
    assert job.restart == RestartSpec(whole=True, limit=2, counts_evictions=True)
    assert "workers join it" in warned(document)


@pytest.mark.parametrize("count", [1000, 1001])
def test_an_experiment_that_is_too_large_for_names_says_so(count: int):
    document = an_experiment(types={"worker": {"count": count}})
    assert the_job(document).names == (count == 1000)
    assert ("its 1001 tasks do not find each other by host name" in warned(document)) == (count > 1000)
    ray = an_experiment("kuberay", types={"head": {"count": 1}, "worker": {"count": count}})
    assert "host name" not in warned(ray), "members of a gang know each other, however many they are"


def test_times_and_names():
    job = the_job(an_experiment(activeDeadlineSeconds=60, timeout=30) | {"name": "Trial"})
    assert (job.time_limit, job.name) == (30, "trial")


def test_what_builds_an_image_is_told_when_it_runs_and_not_in_a_plan():
    document = an_experiment(image="x", tensorboard={"enabled": True}) | {"builder": {"context": "."}}
    assert all(word in warned(document) for word in ("builder", "image", "tensorboard"))
    assert warned(document, for_plan=True) == ""


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (an_experiment("tf"), "'tf' is unknown"),
        (an_experiment(types={}), "types: there is none"),
        (an_experiment(command=""), "command: there is none"),
        (an_experiment(types={"w": {"count": 0}}), "count: 0 is out of range"),
        (an_experiment(types={"w": {"resources": {"cpus": "many"}}}), "is not a quantity"),
        (an_experiment(types={"w": {"resources": {"cpus": -1}}}), "out of range"),
        (an_experiment("kuberay"), "needs one type head"),
        (an_experiment(restartPolicy={"backoffLimit": -1}), "out of range"),
    ],
)
def test_what_cannot_be_an_experiment_is_refused(document: Doc, why: str):
    assert why in refusal(document)
