"""Kinds of documents: which are read, which are skipped with a caution, and which are errors."""

from __future__ import annotations

from phalanx.api.schema.fields import shown
from phalanx.manifests.load import Document, Map
from phalanx.manifests.short_workflow import is_short
from phalanx.manifests.view import View

TITLE_MAX = 600  # characters: a kind, a namespace and a name of Kubernetes
JOB_FILE, CLUSTER_FILE, AICHOR, WORKFLOW = "job file", "cluster file", "aichormanifest", "workflow"

# Lower case, since people write `kind: pod`; with the API groups that mean it.
READ: dict[str, tuple[str, ...]] = {
    "pod": ("v1",),
    "node": ("v1",),
    "podgroup": ("scheduling.sigs.k8s.io", "scheduling.x-k8s.io"),
    "job": ("batch",),
    "jobset": ("jobset.x-k8s.io",),
    "clusternetworktopology": ("scheduling.koordinator.sh",),
    "priorityclass": ("scheduling.k8s.io",),
    AICHOR: (),
}
NAMES = "Pod, PodGroup, Job, JobSet, ClusterNetworkTopology, PriorityClass, AIchorManifest"
# Objects that come with work and are not work themselves: a caution is enough.
BESIDE = frozenset(
    {
        "clusterqueue", "clusterrole", "clusterrolebinding", "configmap", "elasticquota", "endpoints", "endpointslice",
        "event", "ingress", "lease", "limitrange", "localqueue", "namespace", "networkpolicy", "persistentvolume",
        "persistentvolumeclaim", "poddisruptionbudget", "podtemplate", "queue", "resourceflavor", "resourcequota",
        "role", "rolebinding", "secret", "service", "serviceaccount", "storageclass", "topology", "workload",
        "workloadpriorityclass",
    }
)  # fmt: skip
OF_NO_NAMESPACE = ("node", "priorityclass", "clusternetworktopology", AICHOR)
MISPLACED = ("name", "namespace", "labels", "annotations")


def kind_of(document: View) -> str:
    """The kind in lower case, or one of our own files; the same kind of another API group is refused."""
    kind = document.get("kind")
    if kind is None:
        return ""
    if not isinstance(kind, str):
        raise document.error("kind", f"{shown(kind)} is not a kind of document")
    lower = kind.lower()
    version = document.get("apiVersion")
    groups = READ.get(lower, ())
    if groups and isinstance(version, str) and version.partition("/")[0] not in groups:
        raise document.error(
            "apiVersion",
            f"{kind} of {shown(version)} is not read, only that of {' or '.join(groups)}",
            reason="UnknownKind",
        )
    return lower


def title_of(document: Document) -> str:
    """The title of a document: Pod default/a. One that is longer than any name may be is cut."""
    title = _title(document)
    return title if len(title) <= TITLE_MAX else f"{title[:TITLE_MAX]}…"


def _title(document: Document) -> str:
    content = document.content
    kind = content.get("kind")
    metadata = content.get("metadata")
    if not isinstance(kind, str):
        name, noun = content.get("name"), "workflow" if is_short(content) else "job"
        return f"{noun} {name}" if isinstance(name, str) else ""
    if not isinstance(metadata, dict):
        return kind
    name, namespace = metadata.get("name"), metadata.get("namespace") or "default"
    if not name:
        return kind
    return f"{kind} {name}" if kind.lower() in OF_NO_NAMESPACE else f"{kind} {namespace}/{name}"


def indented(document: Document) -> bool:
    """Whether `metadata:` is empty and its fields are beside it; they are moved into it."""
    content = document.content
    if "metadata" not in content or content["metadata"] is not None or "kind" not in content:
        return False
    found = {key: content[key] for key in MISPLACED if key in content}
    if "name" not in found:
        return False
    metadata = Map(found)
    metadata.line, metadata.lines = content.lines.get("metadata", content.line), content.lines
    for key in found:
        del content[key]
    content["metadata"] = metadata
    return True
