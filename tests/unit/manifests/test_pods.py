"""Pods: the request, the command and the policies of a task."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.manifests.caution import ManifestError
from tests.unit.manifests.documents import a_pod, reading, refusal, the_job, warned


def the_group(**fields: Any):
    return the_job(a_pod(**fields)).groups[0]


def a_class(name: str, value: int, **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    } | fields


def test_a_pod_without_a_gang_is_a_job_by_itself():
    job = the_job(a_pod("solo"))
    assert (job.name, job.gang, len(job.groups), job.groups[0].tasks) == ("solo", False, 1, 1)


def test_requests_become_cores_bytes_and_devices():
    group = the_group(requests={"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": 8})
    assert (group.cores, group.memory, group.gpus) == (2, 4 * 2**30, 8)


def test_a_limit_stands_for_a_missing_request():
    group = the_group(
        container={"resources": {"limits": {"cpu": 3, "nvidia.com/gpu": "1"}, "requests": {"memory": "1G"}}}
    )
    assert (group.cores, group.memory, group.gpus) == (3, 10**9, 1)


def test_a_pod_that_asks_for_nothing_gets_no_core_of_its_own():
    assert the_group().cores == 0


@pytest.mark.parametrize(
    ("cpu", "cores"), [("500m", "0.5"), ("1500m", "1.5"), ("1m", "0.001"), ("2000m", "2"), (0.25, "0.25")]
)
def test_parts_of_a_core_are_exact(cpu: object, cores: str):
    pod = a_pod(requests={"cpu": cpu})
    assert repr(the_job(pod).groups[0].cores) == cores
    assert warned(pod) == ""


def test_what_is_finer_than_a_thousandth_of_a_core_is_refused():
    assert "finer than a thousandth of a core" in refusal(a_pod(requests={"cpu": "100u"}))


@pytest.mark.parametrize(
    ("requests", "gpus"),
    [
        ({"amd.com/gpu": 2}, 2),
        ({"koordinator.sh/gpu": 200}, 2),
        ({"koordinator.sh/gpu-core": 150}, 2),
        ({"koordinator.sh/gpu-core": 50, "koordinator.sh/gpu-memory-ratio": 100}, 1),
        ({"koordinator.sh/gpu-memory": "16Gi"}, 1),
        ({"koordinator.sh/gpu.shared": 2, "koordinator.sh/gpu-core": 100}, 1),
    ],
)
def test_devices_by_other_names(requests: dict[str, Any], gpus: int):
    assert the_group(requests=requests).gpus == gpus


def test_a_part_of_a_device_gets_all_of_it_with_a_caution():
    assert "devices are whole here: 1" in warned(a_pod(requests={"koordinator.sh/gpu-core": 50}))


def test_containers_add_up_and_init_containers_count_if_they_need_more():
    sidecar = {"name": "s", "resources": {"requests": {"cpu": 1}}, "restartPolicy": "Always"}
    first = {"name": "i", "resources": {"requests": {"cpu": 2, "memory": "8Gi"}}}
    pod = a_pod(requests={"cpu": 2, "memory": "1Gi"}, initContainers=[sidecar, first])
    pod["spec"]["containers"].append({"name": "x", "resources": {"requests": {"cpu": 4}}})
    group = the_job(pod).groups[0]
    assert (group.cores, group.memory) == (7, 8 * 2**30)
    assert "this container is not run" in warned(pod)


def test_a_pod_that_asks_for_less_memory_than_a_limit_can_have_gets_the_least_with_a_caution():
    pod = a_pod(requests={"cpu": 1, "memory": "10Mi"})
    assert the_job(pod).groups[0].memory == 16 << 20
    assert "asks for 10485760 bytes of memory; a task has at least 16MiB" in warned(pod)


@pytest.mark.parametrize("amount", ["-1", "1K", [], "lots"])
def test_an_amount_that_is_none_is_refused(amount: Any):
    assert "spec.containers[0].resources.requests.cpu" in refusal(a_pod(requests={"cpu": amount}))


def test_a_resource_nobody_counts_is_told():
    assert "rdma/hca" in warned(a_pod(requests={"rdma/hca": 1}))


def test_command_and_args_are_joined_and_references_filled_in():
    container = {
        "command": ["sh", "-c"],
        "args": ["$(GREETING) $(UNKNOWN) $$(GREETING)"],
        "env": [{"name": "WHO", "value": "you"}, {"name": "GREETING", "value": "hello $(WHO)"}],
        "workingDir": "/tmp",
    }
    group = the_group(container=container)
    assert group.command == ["sh", "-c", "hello you $(UNKNOWN) $(GREETING)"]
    assert (group.env, group.cwd) == ({"WHO": "you", "GREETING": "hello you"}, "/tmp")


def test_a_variable_from_elsewhere_is_told():
    container = {"env": [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]}
    assert "so IP is not set" in warned(a_pod(container=container))


@pytest.mark.parametrize("container", [{"command": None}, {"command": [], "args": ["x"]}])
def test_a_container_that_leaves_its_program_to_the_image_is_refused(container: dict[str, Any]):
    assert "container main" in refusal(a_pod(container=container))


def test_a_plan_needs_no_command_and_says_nothing_of_images():
    pod = a_pod(
        container={"command": None, "image": "nvcr.io/x", "ports": [], "volumeMounts": [{"name": "v"}]}
    )
    assert warned(pod, for_plan=True) == ""


def test_an_image_is_told_when_it_is_to_run():
    assert "the image is not used" in warned(a_pod(container={"image": "x"}))


def test_node_name_selector_and_plain_affinity_say_where():
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}}}  # fmt: skip
    group = the_group(nodeName="n1", nodeSelector={"disk": "ssd"}, affinity=affinity)
    assert (group.target, group.labels) == ("n1", {"disk": "ssd", "zone": "a"})


def test_an_affinity_that_labels_cannot_say_is_told():
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}
    affinity = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    }
    assert "spec.affinity" in warned(a_pod(affinity=affinity))


def test_the_label_of_a_host_is_a_target_when_it_runs_and_a_label_in_a_plan():
    pod = a_pod(nodeSelector={"kubernetes.io/hostname": "n1"})
    assert the_job(pod).groups[0].target == "n1"
    assert the_job(pod, for_plan=True).groups[0].labels == {"kubernetes.io/hostname": "n1"}


def test_priority_by_number_by_class_and_by_default():
    classes = [a_class("high", 100), a_class("usual", 7, globalDefault=True)]
    assert the_job(a_pod(priority=5)).priority == 5
    assert the_job(*classes, a_pod(priorityClassName="high")).priority == 100
    assert the_job(*classes, a_pod()).priority == 7
    assert the_job(a_pod(priorityClassName="koord-batch")).priority == 5000


def test_an_unknown_class_is_told():
    assert "no PriorityClass of this name" in warned(a_pod(priorityClassName="secret"))


def test_priorities_beyond_ours_are_brought_down_with_a_caution():
    pod = a_pod(priorityClassName="system-node-critical")
    assert the_job(pod).priority == 1_000_000_000
    assert "priorities end at" in warned(pod)


def test_whoever_never_preempts_evicts_nobody():
    assert the_job(a_pod(preemptionPolicy="Never")).preemption == "never"
    assert (
        the_job(a_class("meek", 1, preemptionPolicy="Never"), a_pod(priorityClassName="meek")).preemption
        == "never"
    )


@pytest.mark.parametrize(
    "labels",
    [
        {"scheduling.koordinator.sh/disable-preemptible": "true"},
        {"quota.scheduling.koordinator.sh/preemptible": "false"},
    ],
)
def test_labels_protect_from_eviction(labels: dict[str, str]):
    assert not the_job(a_pod(labels=labels)).evictable


def test_times_and_restarts():
    job = the_job(a_pod(terminationGracePeriodSeconds=60, activeDeadlineSeconds=3600, restartPolicy="Never"))
    assert (job.grace, job.time_limit, job.max_retries) == (60, 3600, 0)
    assert the_job(a_pod()).grace == 30
    assert the_job(a_pod()).max_retries is None


@pytest.mark.parametrize("key", ["kueue.x-k8s.io/queue-name", "quota.scheduling.koordinator.sh/name"])
def test_a_label_names_the_queue(key: str):
    assert the_job(a_pod(labels={key: "team-a"})).queue == "team-a"


def test_a_pod_with_an_affinity_key_is_a_gang_of_one():
    job = the_job(a_pod(annotations={"scheduling.koordinator.sh/network-topology-selector": "exp-1"}))
    assert not isinstance(job.gang, bool)
    assert job.gang.affinity == "exp-1"


def test_a_long_or_odd_name_is_changed_with_a_caution():
    pod = a_pod("x" * 80)
    assert the_job(pod).name == "x" * 63
    assert "is used" in warned(pod)


def test_the_same_pod_twice_is_refused():
    assert "declared already, at job.yaml:" in refusal(a_pod("a"), a_pod("a"))


def test_tolerations_are_kept_for_a_plan_and_need_no_word():
    pod = a_pod(tolerations=[{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}])
    made = reading(pod)
    assert [each.key for each in made.found[0].tolerations[0]] == ["gpu"]
    assert made.warnings == []


def test_defaults_of_the_api_server_need_no_word():
    spec: dict[str, Any] = {
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "serviceAccountName": "default",
        "enableServiceLinks": True,
        "hostNetwork": True,
    }
    pod = a_pod(**spec)
    pod["metadata"] |= {
        "uid": "1",
        "resourceVersion": "2",
        "creationTimestamp": "3",
        "managedFields": [{"a": 1}],
    }
    pod["status"] = {"phase": "Pending"}
    assert warned(pod) == ""


def test_fields_that_are_not_honoured_are_told_once_for_many():
    (line,) = warned(*(a_pod(f"p{n}", hostname="h", labels={"app": "x"}) for n in range(3))).splitlines()
    assert line.endswith("(and 2 more like it)")


def test_labels_are_kept_as_tags():
    assert the_job(a_pod(labels={"app": "x", "tier": "y"})).groups[0].tags == {"app": "x", "tier": "y"}
    strange = a_pod(labels={"app": "not a label", "number": 3})
    assert the_job(strange).groups[0].tags == {}
    assert warned(strange).count("is not kept") == 2


def test_strictness_makes_errors_of_cautions():
    with pytest.raises(ManifestError, match=r"spec\.hostname") as refused:
        reading(a_pod(hostname="h"), strict=True)
    assert refused.value.reason == "StrictManifest"
    assert the_job(a_pod(), strict=True).name == "p1"


def test_a_wrong_type_is_refused_with_its_line():
    detail = refusal(a_pod(terminationGracePeriodSeconds="soon"))
    assert "job.yaml:" in detail
    assert "spec.terminationGracePeriodSeconds: 'soon' is not a whole number" in detail


def test_a_request_wins_over_a_limit_that_is_higher_and_that_is_told():
    pod = a_pod(container={"resources": {"limits": {"cpu": 4}, "requests": {"cpu": 2}}})
    assert the_job(pod).groups[0].cores == 2
    assert "spec.containers[0].resources.limits.cpu: 4" in warned(pod)
    assert warned(pod, for_plan=True) == ""


@pytest.mark.parametrize("part", [0.5, "500m"])
def test_a_part_of_a_whole_device_is_refused(part: object):
    said = refusal(a_pod(requests={"nvidia.com/gpu": part}))
    assert f"[nvidia.com/gpu]: {part} is not a whole number" in said
