"""Documents for tests: pods, gangs and clusters of which a test writes only what matters, and readings of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from phalanx.api.schema.jobspec import JobSpec
from phalanx.manifests.caution import ManifestError
from phalanx.manifests.read import Manifests, read

SEEDS = Path(__file__).parent / "seeds"
GANG = "gang.scheduling.koordinator.sh"
MEMBER = "pod-group.scheduling.sigs.k8s.io"
Doc = dict[str, Any]


def a_pod(
    name: str = "p1",
    *,
    gang: str = "",
    namespace: str = "default",
    labels: Doc | None = None,
    annotations: Doc | None = None,
    requests: Doc | None = None,
    container: Doc | None = None,
    **spec: Any,
) -> Doc:
    """A pod with one container that has a command."""
    labels = {**({MEMBER: gang} if gang else {}), **(labels or {})}
    main = {"name": "main", "command": ["train"], **(container or {})}
    if requests is not None:
        main["resources"] = {"requests": requests}
    metadata: Doc = {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [main], **spec}}


def pods(count: int, gang: str = "", prefix: str = "p", **fields: Any) -> list[Doc]:
    return [a_pod(f"{prefix}{number}", gang=gang, **fields) for number in range(1, count + 1)]


def a_podgroup(name: str = "g", least: int | None = 1, namespace: str = "default", **annotations: Any) -> Doc:
    """A PodGroup; annotations by their last word: `match_policy="only-waiting"`."""
    words = {f"{GANG}/{key.replace('_', '-')}": value for key, value in annotations.items()}
    spec = {} if least is None else {"minMember": least}
    metadata = {"name": name, "namespace": namespace, "annotations": words}
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": spec,
    }


def a_batch(command: str = "train", **spec: Any) -> Doc:
    """The spec of a batch Job."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "command": [command]}]}}
    return {"template": template, **spec}


def a_batch_job(name: str = "job", **spec: Any) -> Doc:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": a_batch(**spec)}


def a_jobset(*jobs: Doc, name: str = "set", annotations: Doc | None = None, **spec: Any) -> Doc:
    metadata: Doc = {"name": name, "annotations": annotations or {}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": metadata,
        "spec": {"replicatedJobs": list(jobs), **spec},
    }


def a_replicated(
    name: str = "worker", replicas: int = 1, after: list[Doc] | None = None, **batch: Any
) -> Doc:
    made: Doc = {"name": name, "replicas": replicas, "template": {"spec": a_batch(**batch)}}
    return made | ({"dependsOn": after} if after else {})


def a_node(name: str = "n1", labels: Doc | None = None, spec: Doc | None = None, **allocatable: Any) -> Doc:
    """A Node of Kubernetes; `gpu` stands for nvidia.com/gpu."""
    room = {"nvidia.com/gpu" if key == "gpu" else key: value for key, value in allocatable.items()}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec or {},
        "status": {"allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def a_running(name: str, node: str, *, phase: str = "Running", **fields: Any) -> Doc:
    pod = a_pod(name, nodeName=node, **fields)
    return pod | {"status": {"phase": phase, "startTime": "2026-01-01T00:00:10Z"}}


def text_of(*documents: Doc) -> str:
    return yaml.safe_dump_all(documents, sort_keys=False)


def reading(*documents: Doc, cluster: tuple[Doc, ...] = (), **options: Any) -> Manifests:
    """What is read from these documents, in one file each for jobs and for the cluster."""
    files = [("cluster.yaml", text_of(*cluster))] if cluster else []
    texts = [("job.yaml", text_of(*documents))] if documents else []
    return read(texts, cluster=files, **options)


def the_job(*documents: Doc, **options: Any) -> JobSpec:
    (job,) = reading(*documents, **options).jobs
    return job


def refusal(*documents: Doc, **options: Any) -> str:
    """The error of a reading."""
    try:
        made = reading(*documents, **options)
    except ManifestError as error:
        return error.detail
    raise AssertionError(f"it was read: {made.jobs}")


def warned(*documents: Doc, **options: Any) -> str:
    """All cautions of a reading, a line each."""
    return "\n".join(map(str, reading(*documents, **options).warnings))


def seed(name: str) -> str:
    """A manifest of a seed, unchanged except for the dots in place of what was left out."""
    text = (SEEDS / f"{name}.yaml").read_text(encoding="utf-8")
    return "\n".join(line for line in text.splitlines() if line.strip() != "...") + "\n"
