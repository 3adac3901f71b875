"""Reads files into jobs: the entry point of this package.

`read` takes the texts of files and returns what they hold: jobs to run or to plan, the layers and quotas they declare,
a cluster if cluster files were given, and cautions about everything that could not be honoured. It opens no files, and
runs and plans nothing.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import msgspec
from msgspec import Struct

from phalanx.api.schema.fields import shown
from phalanx.api.schema.jobspec import JobSpec
from phalanx.core.model.queues import Quota
from phalanx.core.model.topology import Topology
from phalanx.manifests.aichor import is_aichor, read_aichor
from phalanx.manifests.assembly import assemble
from phalanx.manifests.batchjob import read_batch_job
from phalanx.manifests.caution import Caution, Cautions, ManifestError, together
from phalanx.manifests.cluster import ClusterSpec, is_cluster_file, read_cluster_file
from phalanx.manifests.contents import settled
from phalanx.manifests.drafts import in_folder, is_same_document, with_classes
from phalanx.manifests.found import Incomplete, ParsedJob
from phalanx.manifests.gangs import GangBook
from phalanx.manifests.job import read_native, validate
from phalanx.manifests.jobset import read_jobset
from phalanx.manifests.kinds import (
    AICHOR,
    BESIDE,
    CLUSTER_FILE,
    JOB_FILE,
    NAMES,
    READ,
    WORKFLOW,
    indented,
    kind_of,
    title_of,
)
from phalanx.manifests.layers import fit_layers
from phalanx.manifests.load import DOCUMENTS_MAX, load
from phalanx.manifests.nodes import read_node
from phalanx.manifests.podgroups import read_podgroup
from phalanx.manifests.pods import Pod, Reader
from phalanx.manifests.priorities import Priorities
from phalanx.manifests.topology import read_network_topology
from phalanx.manifests.unread import warn_unread
from phalanx.manifests.view import Source, View
from phalanx.manifests.workflows import (
    ParsedWorkflow,
    WorkflowSize,
    first_stages,
    is_workflow_file,
    read_workflow,
)

T = TypeVar("T")
KEPT = "(applied before)"
Text = tuple[str, str]  # the name of a file, and its contents


class Manifests(Struct):
    """What was read. `jobs` are the specs of `found`, for callers that need no more."""

    found: list[ParsedJob]
    incomplete: list[Incomplete]  # in a plan: gangs that cannot start because the files lack something
    topology: Topology | None
    queues: dict[str, Quota]
    cluster: ClusterSpec | None  # if cluster files were given
    warnings: list[Caution]
    workflows: list[ParsedWorkflow] = []

    @property
    def jobs(self) -> list[JobSpec]:
        return [each.spec for each in self.found]


def read(
    texts: Sequence[Text],
    *,
    cluster: Sequence[Text] = (),
    strict: bool = False,
    for_plan: bool = False,
    kept: Sequence[str] | None = None,
    folder: str = "",
    documents_most: int = DOCUMENTS_MAX,
) -> Manifests:
    """Read job files and, for a plan without a server, cluster files; raises ManifestError.

    With `kept`, the documents of gangs that wait for members, a gang that lacks some is a job that waits (in a plan it
    is incomplete); documents that were kept may be given again unchanged. Pods that name no folder run in `folder`. Of
    each file `documents_most` documents are read.
    """
    with _uncollected():
        keeps = kept is not None and not for_plan
        reading = _Reading(for_plan or bool(cluster), keeps=keeps, folder=folder, most=documents_most)
        for text in kept or ():
            reading.take(KEPT, text, from_cluster=False)
        for file, text in cluster:
            reading.take(file, text, from_cluster=True)
        reading.refuse_jobs_alone()
        for file, text in texts:
            reading.take(file, text, from_cluster=False)
        if texts and not reading.asked:
            raise ManifestError(texts[0][0], "there is nothing in it: no document, or only empty ones")
        made = reading.finish(has_cluster=bool(cluster))
    if strict:
        reading.cautions.refuse()
    return made


@contextmanager
def _uncollected() -> Iterator[None]:
    """Switch the garbage collector off: a million values that all stay; scanning them takes half the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class _Reading:
    """One reading: documents by kind first, then what they make together."""

    def __init__(
        self, for_plan: bool, keeps: bool = False, folder: str = "", most: int = DOCUMENTS_MAX
    ) -> None:
        self.for_plan = for_plan
        self.keeps = keeps
        self.folder = folder
        self.most = most
        self.cautions = Cautions()
        self.errors: list[ManifestError] = []
        self.by_kind: dict[str, list[View]] = {}
        self.asked: list[View] = []
        self.seen: dict[tuple[str, str, bool], View] = {}
        self.priorities = Priorities()
        self.reader = Reader(self.priorities)

    def take(self, file: str, text: str, *, from_cluster: bool) -> None:
        for document in load(file, text, self.most):
            beside = indented(document)
            cautions = Cautions() if file == KEPT else self.cautions  # it was reported then
            source = Source(
                document, title_of(document), cautions, lenient=from_cluster, for_plan=self.for_plan
            )
            view = View(source, document.content)
            if beside:
                view.caution(
                    "metadata", "is empty, and its fields are beside it: read as if they were inside", ""
                )
            kind = self._kind(view, from_cluster)
            if kind:
                self.by_kind.setdefault(kind, []).append(view)
            if not from_cluster and file != KEPT:
                self.asked.append(view)

    def refuse_jobs_alone(self) -> None:
        """Refuse job files where a cluster was to be described."""
        jobs = [view for view in self.by_kind.get(JOB_FILE, ()) if view.source.lenient]
        if jobs and set(self.by_kind) == {JOB_FILE}:
            text = "this is a job file, not a cluster file, which has nodes: give it with -f"
            raise ManifestError(jobs[0].where(), text)

    def _kind(self, view: View, from_cluster: bool) -> str:
        if is_workflow_file(view):
            return WORKFLOW
        kind = kind_of(view)
        if kind == AICHOR or (not kind and is_aichor(view)):
            return AICHOR
        if not kind:
            return CLUSTER_FILE if is_cluster_file(view) else JOB_FILE
        if kind in READ and not (kind == "node" and not from_cluster):
            return kind if self._once(view, kind, from_cluster) else ""
        if kind in BESIDE or from_cluster or kind == "node":
            view.caution("kind", "is not read" + (": give it with --cluster" if kind == "node" else ""))
            view.skip(*view.content)
            return ""
        raise view.error(
            "kind",
            f"{shown(view.content['kind'])} cannot be read; supported are {NAMES}",
            reason="UnknownKind",
        )

    def _once(self, view: View, kind: str, from_cluster: bool) -> bool:
        """Whether an object is to be read: one that was kept, and is given again unchanged, is not."""
        metadata = view.content.get("metadata")
        if not isinstance(metadata, dict) or not metadata.get("name"):
            return True
        name = f"{metadata.get('namespace') or 'default'}/{metadata['name']}"
        first = self.seen.setdefault((kind, name, from_cluster), view)
        if first is view or from_cluster:
            return True
        if first.source.file != KEPT:
            raise view.error("metadata", f"it has been declared already, at {first.where()}")
        if not is_same_document(first.content, view.content):
            raise view.error(
                "metadata",
                f"it was applied before with another content, and its gang waits for members: `phalanx cancel {name}`"
                " and apply all of it again",
            )
        view.skip(*view.content)
        return False

    def each(self, kind: str, reader: Callable[[View], T | None]) -> Iterator[T]:
        """Read the documents of a kind; an error in one that is only part of a cluster is a caution."""
        for view in self.by_kind.get(kind, ()):
            try:
                made = reader(view)
            except ManifestError as error:
                if not view.source.lenient or kind in (JOB_FILE, CLUSTER_FILE):
                    self.errors.append(error)
                    continue
                text = error.detail.removeprefix(f"{error.where}: ").removeprefix(f"{view.source.title}: ")
                view.caution("", f"it cannot be read and is skipped: {text}", "")
                continue
            if made is not None:
                yield made
            if view.source.lenient:
                view.forget()

    def finish(self, *, has_cluster: bool) -> Manifests:
        for view in self.by_kind.get("priorityclass", ()):
            self.priorities.declare(view)
        book = GangBook(self.each("podgroup", read_podgroup))
        self._refuse()
        found = self._workloads(book)
        pods = self._pods()
        self._refuse()
        book.keeps = self.keeps
        classes = tuple(view.content for view in self.by_kind.get("priorityclass", ()))
        found += [with_classes(each, classes) for each in assemble(pods, book)]
        book.left_out()
        parts = list(self.each(CLUSTER_FILE, read_cluster_file))
        topology = self._topology(parts)
        self._refuse()
        found += [job for part in parts for job in part.jobs]
        workflows = list(self.each(WORKFLOW, partial(read_workflow, size=WorkflowSize())))
        if has_cluster:  # a running one is asked about the whole workflow
            found += [job for flow in workflows for job in first_stages(flow, self.cautions)]
        found = list(self._all_checked(found, topology))
        self._refuse()
        asked = [each for each in found if each.asked and not each.placed]
        contents = None
        if has_cluster:
            known = [each for each in found if each.placed or not each.asked]
            contents = settled(list(self.each("node", read_node)), parts, pods, known, self.cautions)
            contents.topology = topology
        for view in self.asked:
            warn_unread(view)
        queues = {name: quota for part in parts for name, quota in part.queues.items()}
        warnings = self.cautions.all()
        return Manifests(asked, book.incomplete, topology, queues, contents, warnings, workflows)

    def _refuse(self) -> None:
        """Every document that cannot be read, in one error."""
        if self.errors:
            raise together(self.errors)

    def _workloads(self, book: GangBook) -> list[ParsedJob]:
        readers: tuple[tuple[str, Callable[[View], ParsedJob | None]], ...] = (
            ("job", lambda view: _asked_only(view, lambda: read_batch_job(view, self.reader, book))),
            ("jobset", lambda view: _asked_only(view, lambda: read_jobset(view, self.reader, book))),
            (AICHOR, read_aichor),
            (JOB_FILE, self._native),
        )
        return [found for kind, reader in readers for found in self.each(kind, reader)]

    def _native(self, view: View) -> ParsedJob:
        spec = read_native(view)
        validate(spec, view, view.where(), "")
        return ParsedJob(spec, view.where(), spec.name or view.where(), asked=not view.source.lenient)

    def _pods(self) -> list[Pod]:
        pods = list(self.each("pod", self.reader.pod))
        there = {pod.name for pod in pods if pod.from_cluster}
        for pod in pods:
            if not pod.from_cluster and pod.name in there:
                pod.template.view.caution("name", "the cluster has it already, so it is not planned again")
        pods = [pod for pod in pods if pod.from_cluster or pod.name not in there]
        return [in_folder(pod, self.folder) for pod in pods] if self.folder else pods

    def _topology(self, parts: list[ClusterSpec]) -> Topology | None:
        declared = list(self.each("clusternetworktopology", read_network_topology))
        declared += [part.topology for part in parts if part.topology is not None]
        return declared[-1] if declared else None

    def _all_checked(self, found: list[ParsedJob], topology: Topology | None) -> Iterator[ParsedJob]:
        for each in found:
            try:
                checked = self._checked(each, topology)
            except ManifestError as error:
                self.errors.append(error)
                continue
            if checked is not None:
                yield checked

    def _checked(self, each: ParsedJob, topology: Topology | None) -> ParsedJob | None:
        """The job with the layers of the network, validated as a submission is."""
        spec = each.spec
        if topology is not None:
            spec, cautions, missing = fit_layers(spec, topology, each.where)
            if each.asked:
                for caution in cautions:
                    self.cautions.add(each.where, "", caution.path, caution.value, caution.text)
                if missing is not None and not self.for_plan:
                    raise ManifestError(each.where, missing.text, reason=missing.code)
        try:
            validate(spec, None, each.where, each.id)
        except ManifestError as error:
            if each.asked:
                raise
            self.cautions.add(each.where, each.id, "", "", f"it is left out of the cluster: {error.detail}")
            return None
        return msgspec.structs.replace(each, spec=spec)


def _asked_only(view: View, reader: Callable[[], ParsedJob | None]) -> ParsedJob | None:
    """A Job in a cluster is known by its pods, which are in the files as well."""
    return None if view.source.lenient else reader()
