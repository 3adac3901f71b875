"""`batch/v1 Job`: one group whose tasks are the completions, some of them at a time."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from phalanx.api.schema.jobspec import JobSpec, RestartSpec, SuccessSpec
from phalanx.core.model.amounts import SECONDS_MAX
from phalanx.core.model.array import TASKS_MAX
from phalanx.core.model.job import RETRIES_MAX
from phalanx.manifests.found import ParsedJob, object_names, plain_name
from phalanx.manifests.gangs import GangBook
from phalanx.manifests.podgroups import full_name
from phalanx.manifests.pods import QUEUE_LABELS, Reader, Template, read_tags
from phalanx.manifests.traits import common_traits, with_traits
from phalanx.manifests.view import View
from phalanx.manifests.workload import with_gang_of

BACKOFF_LIMIT = 6  # Kubernetes' own
COUNT_MAX = (1 << 31) - 1


class BatchJob(Struct, frozen=True):
    """What the spec of a Job says."""

    template: Template
    completions: int
    at_once: int  # 0: all
    retries: int
    each_by_itself: bool  # retries count for each task, not for all together
    counts_evictions: bool
    time_limit: int | None
    any_will_do: bool


def read_batch_job(document: View, reader: Reader, book: GangBook) -> ParsedJob | None:
    """Read one Job; None if it belongs to a gang that lacks something."""
    metadata = document.view("metadata")
    id = full_name(metadata)
    batch = read_batch(document.view("spec"), reader)
    traits = common_traits([batch.template])
    group = msgspec.structs.replace(
        batch.template.group, tasks=batch.completions, at_once=batch.at_once, tags=batch.template.tags
    )
    restart = RestartSpec(
        whole=False,
        fails_job=not batch.each_by_itself,
        shared=not batch.each_by_itself,
        counts_evictions=batch.counts_evictions,
    )
    spec = JobSpec(
        [group],
        name=plain_name(id, metadata),
        restart=restart,
        success=SuccessSpec(batch.any_will_do),
        object="".join(object_names([id])),
    )
    spec = msgspec.structs.replace(
        with_traits(spec, traits), max_retries=batch.retries, time_limit=batch.time_limit or traits.time_limit
    )
    made = with_gang_of(with_labels(spec, metadata), [batch.template], book, traits.affinity)
    tell_namespace(metadata)
    tolerations = (batch.template.tolerations,)
    if made is None:
        return None
    return ParsedJob(
        made, metadata.where(), id, tolerations=tolerations, documents=book.documents_of(document, made)
    )


def read_batch(spec: View, reader: Reader) -> BatchJob:
    """Read the spec of a Job, by itself or inside a JobSet."""
    parallelism = spec.number("parallelism", 1, 0, COUNT_MAX)
    completions = _completions(spec, parallelism)
    if parallelism == 0:
        spec.caution("parallelism", "nothing is held back: it waits for room and starts")
        parallelism = completions
    spec.word("completionMode", ("Indexed", "NonIndexed"), "NonIndexed")  # every task gets its index anyway
    each = "backoffLimitPerIndex" in spec
    retries = spec.number("backoffLimitPerIndex" if each else "backoffLimit", BACKOFF_LIMIT, 0, COUNT_MAX)
    if retries > RETRIES_MAX:
        spec.caution("backoffLimit", f"retries end at {RETRIES_MAX}, which is taken instead", retries)
    if each:
        spec.skip("backoffLimit")
    deadline = spec.number("activeDeadlineSeconds", 0, 1, SECONDS_MAX) or None
    if deadline and not spec.source.for_plan:
        spec.caution("activeDeadlineSeconds", "it limits each attempt of a task, not all attempts together")
    template = spec.view("template")
    spec.skip("selector", "manualSelector")
    return BatchJob(
        template=reader.template(template.view("metadata"), template.view("spec")),
        completions=completions,
        at_once=0 if parallelism >= completions else parallelism,
        retries=min(retries, RETRIES_MAX),
        each_by_itself=each,
        counts_evictions=not _forgives_evictions(spec),
        time_limit=deadline,
        any_will_do=_any_will_do(spec),
    )


def with_labels(spec: JobSpec, metadata: View) -> JobSpec:
    """The spec with the labels of the workload itself; a queue named there wins over that of its template."""
    labels = metadata.view("labels")
    metadata.view("annotations")  # read, so that each unread annotation gives its own caution
    given = [labels.get(key) for key in QUEUE_LABELS]
    queue = next((each for each in given if isinstance(each, str) and each), spec.queue)
    return msgspec.structs.replace(spec, queue=queue, tags=read_tags(metadata))


def tell_namespace(metadata: View) -> None:
    if metadata.text("namespace", "default") not in ("", "default"):
        metadata.note(
            "namespace",
            "is kept in the name and separates nothing; queues and quotas go by the name of a queue",
        )


def _completions(spec: View, parallelism: int) -> int:
    if "completions" in spec:
        return spec.number("completions", 1, 1, TASKS_MAX)
    if parallelism > TASKS_MAX:
        raise spec.error("parallelism", f"{parallelism} is out of range, give 0 to {TASKS_MAX}")
    if parallelism > 1:
        spec.caution(
            "parallelism", f"without completions each of the {parallelism} tasks has to succeed by itself"
        )
    return max(1, parallelism)


def _forgives_evictions(spec: View) -> bool:
    """Whether a rule says that disruptions do not count; other rules of a pod failure policy are not read."""
    for rule in spec.view("podFailurePolicy").views("rules"):
        conditions = rule.content.get("onPodConditions")
        types = (
            [each.get("type") for each in conditions if isinstance(each, dict)]
            if isinstance(conditions, list)
            else []
        )
        if (
            rule.content.get("action") == "Ignore"
            and types == ["DisruptionTarget"]
            and "onExitCodes" not in rule
        ):
            rule.skip("action", "onPodConditions")
            return True
    return False


def _any_will_do(spec: View) -> bool:
    """Whether one successful task is enough; finer success policies are not read."""
    policy = spec.view("successPolicy")
    rules = policy.views("rules")
    if len(rules) == 1 and dict(rules[0].content) == {"succeededCount": 1}:
        rules[0].skip("succeededCount")
        return True
    return False
