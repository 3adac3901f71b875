"""`jobset.x-k8s.io JobSet`: each replicated job becomes a group, and its policies those of one job.

JobSet's Jobs are runs of equal length inside a group (`replicas`); a Job that fails for good is a task of ours that
has used up its retries.
"""

from __future__ import annotations

from typing import cast

import msgspec

from phalanx.api.schema.groupspec import AfterSpec, GroupSpec, Network
from phalanx.api.schema.jobspec import JobSpec, NetworkSpec, RestartSpec, RuleSpec, SuccessSpec
from phalanx.core.model.array import TASKS_MAX
from phalanx.core.model.job import RETRIES_MAX, Action
from phalanx.manifests.batchjob import COUNT_MAX, BatchJob, read_batch, tell_namespace, with_labels
from phalanx.manifests.found import ParsedJob, knows_names, object_names, plain_name, tell_no_names
from phalanx.manifests.gangs import GangBook
from phalanx.manifests.podgroups import full_name
from phalanx.manifests.pods import Reader
from phalanx.manifests.traits import common_traits, with_traits
from phalanx.manifests.view import View
from phalanx.manifests.workload import with_gang_of

ACTIONS = {
    "FailJobSet": "fail",
    "RestartJobSet": "restart",
    "RestartJobSetAndIgnoreMaxRestarts": "restart-uncounted",
    "RestartJob": "restart-replica",
    "RestartJobAndIgnoreMaxRestarts": "restart-replica-uncounted",
}
# Why a Job failed, as the reasons with which a task ends.
REASONS = {
    "BackoffLimitExceeded": (
        "exited",
        "signalled",
        "oom",
        "refused",
        "lost",
        "evicted",
        "unconfirmed",
        "unknown",
    ),
    "DeadlineExceeded": ("timeout",),
}
NETWORK = "phalanx/network"  # an annotation of ours
STRATEGIES = ("Recreate", "BlockingRecreate", "InPlaceRestart")


def read_jobset(document: View, reader: Reader, book: GangBook) -> ParsedJob | None:
    """Read one JobSet; None if it belongs to a gang that lacks something."""
    metadata, spec = document.view("metadata"), document.view("spec")
    id = full_name(metadata)
    groups: list[GroupSpec] = []
    batches: list[BatchJob] = []
    for each in spec.views("replicatedJobs"):
        if each.number("replicas", 1, 0, TASKS_MAX) == 0:
            each.caution("replicas", "there is nothing to run in this group, it is left out")
            continue
        batch = read_batch(each.view("template").view("spec"), reader)
        batches.append(batch)
        groups.append(_group(each, batch, groups, spec))
    if not groups:
        raise spec.error("replicatedJobs", "there is none, so there is nothing to run")
    templates = [batch.template for batch in batches]
    traits = common_traits(templates)
    made = JobSpec(
        groups,
        name=plain_name(id, metadata),
        restart=_restart(spec, batches, groups),
        success=_success(spec, groups),
        object="".join(object_names([id])),
        names=_wants_names(spec) and knows_names(groups),
        network=NetworkSpec(_mode(metadata), spec.view("network").text("subdomain")),
    )
    made = msgspec.structs.replace(
        with_traits(made, traits), max_retries=_retries(spec, batches), time_limit=_time_limit(spec, batches)
    )
    gang = with_gang_of(with_labels(made, metadata), templates, book, traits.affinity)
    tell_namespace(metadata)
    tolerations = tuple(template.tolerations for template in templates)
    if gang is None:
        return None
    if _wants_names(spec) and not gang.gang:
        tell_no_names(groups, spec)
    return ParsedJob(
        gang, metadata.where(), id, tolerations=tolerations, documents=book.documents_of(document, gang)
    )


def _mode(metadata: View) -> Network:
    annotations = metadata.view("annotations")
    return cast(Network, annotations.word(NETWORK, ("node", "overlay"), "node"))


def _wants_names(spec: View) -> bool:
    """Whether tasks are to know each other by name, as in JobSet unless it says otherwise."""
    return spec.view("network").flag("enableDNSHostnames", True)


def _group(each: View, batch: BatchJob, before: list[GroupSpec], spec: View) -> GroupSpec:
    name = each.text("name")
    if not name:
        raise each.error("name", "it is missing")
    each.skip("groupName")
    replicas = each.number("replicas", 1, 0, TASKS_MAX)
    after = [
        AfterSpec(
            one.text("name"),
            "completed" if one.word("status", ("Ready", "Complete"), "Ready") == "Complete" else "started",
        )
        for one in each.views("dependsOn")
    ]
    order = spec.view("startupPolicy").word("startupPolicyOrder", ("AnyOrder", "InOrder"), "AnyOrder")
    if order == "InOrder" and before:
        after.append(AfterSpec(before[-1].name, "started"))
    return msgspec.structs.replace(
        batch.template.group,
        name=name,
        tasks=replicas * batch.completions,
        replicas=replicas,
        at_once=batch.at_once,
        after=after,
        tags=batch.template.tags,
    )


def _restart(spec: View, batches: list[BatchJob], groups: list[GroupSpec]) -> RestartSpec:
    counts = any(batch.counts_evictions for batch in batches)
    alone = len(groups) == 1 and groups[0].replicas == 1 and not batches[0].each_by_itself
    if "failurePolicy" not in spec:
        return RestartSpec(whole=False, fails_job=True, shared=alone, counts_evictions=counts)
    policy = spec.view("failurePolicy")
    if policy.word("restartStrategy", STRATEGIES, "Recreate") == "InPlaceRestart":
        policy.caution(
            "restartStrategy", "every task is restarted, on the same node if that is the best place"
        )
    limit = policy.number("maxRestarts", 0, 0, COUNT_MAX)
    if limit > RETRIES_MAX:
        policy.caution("maxRestarts", f"restarts end at {RETRIES_MAX}, which is taken instead")
    rules = [rule for each in policy.views("rules") if (rule := _rule(each)) is not None]
    return RestartSpec(
        whole=True, limit=min(limit, RETRIES_MAX), shared=alone, counts_evictions=counts, rules=rules
    )


def _rule(each: View) -> RuleSpec | None:
    each.skip("name")
    action = ACTIONS[each.word("action", tuple(ACTIONS), "")]
    asked = each.strings("onJobFailureReasons")
    unknown = [reason for reason in asked if reason not in REASONS]
    if unknown:
        each.caution("onJobFailureReasons", f"{', '.join(unknown)} never happens here")
        if len(unknown) == len(asked):
            each.skip("onJobFailureMessagePatterns", "targetReplicatedJobs")
            return None
    patterns = each.strings("onJobFailureMessagePatterns")
    if patterns:
        each.caution("onJobFailureMessagePatterns", "it is compared with the message of a task, not of a Job")
    reasons = [word for reason in asked for word in REASONS.get(reason, ())]
    return RuleSpec(cast("Action", action), reasons, patterns, each.strings("targetReplicatedJobs"))


def _success(spec: View, groups: list[GroupSpec]) -> SuccessSpec:
    policy = spec.view("successPolicy")
    is_any = policy.word("operator", ("All", "Any"), "All") == "Any"
    if is_any and any(group.tasks > group.replicas for group in groups):
        policy.caution("operator", "one successful task is enough, not only a whole Job")
    return SuccessSpec(is_any, policy.strings("targetReplicatedJobs"))


def _retries(spec: View, batches: list[BatchJob]) -> int:
    retries = {batch.retries for batch in batches}
    if len(retries) > 1:
        spec.caution(
            "replicatedJobs", f"backoffLimit differs between them: {max(retries)} is taken for all", ""
        )
    return max(retries)


def _time_limit(spec: View, batches: list[BatchJob]) -> int | None:
    limits = {batch.time_limit or batch.template.traits.time_limit for batch in batches}
    if len(limits) == 1:
        return limits.pop()
    chosen = None if None in limits else max(each for each in limits if each is not None)
    spec.caution(
        "replicatedJobs", f"activeDeadlineSeconds differs between them: {chosen or 'none'} is taken", ""
    )
    return chosen
