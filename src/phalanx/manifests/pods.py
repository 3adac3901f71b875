"""Pods and pod templates: the request, the command and the policies of a task.

`podgroups.py` reads what a pod says about its gang, `containers.py` and `amounts.py` its containers.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from phalanx.api.schema.fields import shown
from phalanx.api.schema.groupspec import GPUS_MAX, GroupSpec
from phalanx.core.model.amounts import SECONDS_MAX
from phalanx.core.model.job import TAGS_MAX, is_tag
from phalanx.manifests.amounts import Amounts, read_amounts
from phalanx.manifests.containers import read_program
from phalanx.manifests.podgroups import AFFINITY, Terms, full_name, gang_of, member_index, read_terms
from phalanx.manifests.priorities import Priorities
from phalanx.manifests.taints import Toleration, read_tolerations
from phalanx.manifests.view import View

GRACE_S = 30  # Kubernetes' own
HOSTNAME = "kubernetes.io/hostname"
QUEUE_LABELS = (
    "kueue.x-k8s.io/queue-name",
    "quota.scheduling.koordinator.sh/name",
    "scheduling.volcano.sh/queue-name",
)
PROTECTED = (
    ("scheduling.koordinator.sh/disable-preemptible", "true"),
    ("quota.scheduling.koordinator.sh/preemptible", "false"),
)
OF_ONE_POD = ("nodeName", "hostname")  # they differ between pods that are otherwise alike
SCHEDULERS = ("", "koord-scheduler", "default-scheduler", "phalanx")


class Traits(Struct, frozen=True):
    """Fields of a pod that a job has once for all its tasks."""

    priority: int = 0
    may_evict: bool = True
    evictable: bool = True
    grace: int = GRACE_S
    time_limit: int | None = None
    restarts: bool = True
    queue: str = "default"
    affinity: str = ""


class PodRequest(Struct, frozen=True):
    """What the spec of a pod says."""

    group: GroupSpec
    amounts: Amounts
    traits: Traits
    tolerations: tuple[Toleration, ...]


class Template(Struct, frozen=True):
    """What pods made from one description have in common."""

    group: GroupSpec
    amounts: Amounts
    traits: Traits
    gang: str  # namespace/name, or empty
    terms: Terms
    tolerations: tuple[Toleration, ...]
    view: View
    tags: dict[str, str] = {}


class Pod(Struct, frozen=True):
    """One pod. `node` is set for those that hold a place in a cluster."""

    name: str  # namespace/name
    template: Template
    index: int | None = None
    node: str = ""
    started_at: float | None = None
    ending: bool = False
    nominated: str = ""
    owner: str = ""
    from_cluster: bool = False
    done: bool = False  # it has succeeded


class Reader:
    """Reads pods and their templates. Pods of a cluster are many and alike, so each distinct spec is read once."""

    def __init__(self, priorities: Priorities) -> None:
        self._priorities = priorities
        self._known: dict[bytes, PodRequest] = {}

    def pod(self, document: View) -> Pod | None:
        """Read one Pod; None if it is part of a cluster, has ended and does not count for a gang.

        A gang counts members that have succeeded.
        """
        from_cluster = document.source.lenient
        metadata, spec = document.view("metadata"), document.view("spec")
        status = document.view("status")
        status.skip(*status.content)
        phase = status.content.get("phase") if from_cluster else None
        if phase == "Failed" or (phase == "Succeeded" and not gang_of(metadata)):
            return None
        name = full_name(metadata)
        nominated = status.content.get("nominatedNodeName") or status.content.get("nominatednodeName")
        return Pod(
            name,
            self.template(metadata, spec),
            member_index(metadata),
            spec.text("nodeName") if from_cluster and phase != "Succeeded" else "",
            _instant(status, "startTime"),
            metadata.content.get("deletionTimestamp") is not None,
            nominated if isinstance(nominated, str) else "",
            _owner(metadata) if from_cluster else "",
            from_cluster,
            phase == "Succeeded",
        )

    def template(self, metadata: View, spec: View) -> Template:
        """Read the request, the command and the policies of a pod, or of a template for pods."""
        options = self._options(spec) if spec.source.lenient else read_options(spec, self._priorities)
        traits = _labelled(options.traits, metadata)
        return Template(
            options.group,
            options.amounts,
            traits,
            gang_of(metadata),
            read_terms(metadata),
            options.tolerations,
            metadata,
            {} if metadata.source.lenient else read_tags(metadata),
        )

    def _options(self, spec: View) -> PodRequest:
        key = msgspec.json.encode([each for each in spec.content.items() if each[0] not in OF_ONE_POD])
        options = self._known.get(key)
        if options is None:
            options = self._known[key] = read_options(spec, self._priorities)
        return options


def read_options(spec: View, priorities: Priorities) -> PodRequest:
    """What the spec of a pod says."""
    scheduler = spec.text("schedulerName")
    if scheduler not in SCHEDULERS:
        spec.note("schedulerName", "it is scheduled by Phalanx")
    amounts = read_amounts(spec)
    _tell_rounding(spec, amounts)
    program = read_program(spec)
    labels, target = _where_to(spec)
    group = GroupSpec(
        command=list(program.argv),
        env=program.env,
        cwd=program.cwd,
        cores=amounts.cores,
        memory=amounts.memory_bytes,
        gpus=amounts.gpus,
        gpu_memory=amounts.gpu_memory_bytes,
        labels=labels,
        target=target,
    )
    return PodRequest(group, amounts, _traits(spec, priorities), read_tolerations(spec))


def _traits(spec: View, priorities: Priorities) -> Traits:
    priority = priorities.of(spec)
    policy = spec.word("restartPolicy", ("Always", "OnFailure", "Never"), "OnFailure")
    if policy == "Always" and not spec.source.for_plan:
        spec.caution(
            "restartPolicy", "a task that ends with code 0 has done its work and is not started again"
        )
    return Traits(
        priority=priority.value,
        may_evict=priority.may_evict,
        grace=spec.number("terminationGracePeriodSeconds", GRACE_S, 0, 86_400),
        time_limit=spec.number("activeDeadlineSeconds", 0, 1, SECONDS_MAX) or None,
        restarts=policy != "Never",
    )


def _labelled(traits: Traits, metadata: View) -> Traits:
    """The traits, with those from labels and annotations."""
    labels, annotations = metadata.view("labels"), metadata.view("annotations")
    given = [labels.get(key) for key in QUEUE_LABELS] + [annotations.get(key) for key in QUEUE_LABELS]
    return msgspec.structs.replace(
        traits,
        evictable=not any(str(labels.get(key)).lower() == protected for key, protected in PROTECTED),
        queue=next((each for each in given if isinstance(each, str) and each), "default"),
        affinity=annotations.text(AFFINITY),
    )


def read_tags(metadata: View) -> dict[str, str]:
    """The labels of an object, which are kept as tags; the first so many that are valid ones."""
    labels = metadata.view("labels")
    kept = [
        (key, value) for key, value in labels.content.items() if isinstance(value, str) and is_tag(key, value)
    ]
    labels.skip(*(key for key, _ in kept[:TAGS_MAX]))
    return dict(kept[:TAGS_MAX])


def _tell_rounding(spec: View, amounts: Amounts) -> None:
    if spec.source.lenient:  # what runs in a cluster is counted exactly
        return
    if amounts.gpu_percent % 100:
        spec.caution(
            "containers", f"devices are whole here: {amounts.gpus} are asked for", f"{amounts.gpu_percent}%"
        )
    if amounts.gpus > GPUS_MAX:
        raise spec.error("containers", f"{amounts.gpus} GPUs are too many for one task, at most {GPUS_MAX}")


def _where_to(spec: View) -> tuple[dict[str, str], str | None]:
    """The labels a node must have, and the one node that is required, if any."""
    selector = spec.view("nodeSelector")
    labels = {key: selector.text(key) for key in selector.content}
    for key, value in _affinity_labels(spec).items():
        if labels.setdefault(key, value) != value:
            raise spec.error("affinity", f"{key} must be {value!r} here and {labels[key]!r} in nodeSelector")
    target = None if spec.source.lenient else spec.text("nodeName") or None
    if target is None and not spec.source.for_plan and HOSTNAME in labels:
        target = labels.pop(HOSTNAME)  # our nodes have their name, not this label
    return labels, target


def _affinity_labels(spec: View) -> dict[str, str]:
    """A required node affinity, where one set of labels has the same meaning; otherwise it is left unread."""
    affinity: Any = spec.content.get("affinity")
    try:
        required = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        (term,) = required["nodeSelectorTerms"]
        labels = {each["key"]: each["values"][0] for each in term["matchExpressions"]}
        plain = all(
            each["operator"] == "In" and len(each["values"]) == 1 for each in term["matchExpressions"]
        )
    except (KeyError, TypeError, ValueError, IndexError):
        return {}
    if not plain or set(term) != {"matchExpressions"} or not all(isinstance(v, str) for v in labels.values()):
        return {}
    inner = spec.view("affinity")
    nodes = inner.view("nodeAffinity")
    nodes.skip("requiredDuringSchedulingIgnoredDuringExecution")
    return labels


def _instant(view: View, key: str) -> float | None:
    text = view.content.get(key)
    if not isinstance(text, str):
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        view.caution(key, f"{shown(text)} is not a time")
        return None
    return at.timestamp() if at.tzinfo is not None else None


def _owner(metadata: View) -> str:
    """Which job of a cluster a pod belongs to, if it is of no gang."""
    key = metadata.view("labels").get("scheduling.koordinator.sh/questioned-object-key")
    if isinstance(key, str) and key:
        return key
    for each in metadata.views("ownerReferences"):
        if each.content.get("controller") is True and isinstance(each.content.get("name"), str):
            return f"{metadata.text('namespace', 'default')}/{each.content['name']}"
    return ""
