"""A job with groups, as it travels over REST and as job files write it, and how it becomes a `Job`.

Checked here is all that can be known without the cluster. Reading files into a `JobSpec` is `manifests/`; whether a
node, a layer or room for it exists, the coordinator says.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct, structs

from phalanx.api.schema.begin import read_begin
from phalanx.api.schema.dependencies import read_after
from phalanx.api.schema.fields import (
    PatternBudget,
    check_count,
    check_job_name,
    check_name,
    check_number,
    check_object,
    check_text,
    read_duration,
    read_span,
    read_tags,
    shown,
)
from phalanx.api.schema.groupspec import (
    TEXT_BYTES_MAX,
    GatherSpec,
    GroupSpec,
    Network,
    check_after,
    read_affinity,
    read_gather,
    read_names,
    read_subdomain,
    to_group,
)
from phalanx.api.schema.params import check_templates, read_params, sweep_array
from phalanx.core.model.array import TASKS_MAX, Array, ArrayError, parse_array
from phalanx.core.model.job import (
    GANG_TASKS_MAX,
    GROUPS_MAX,
    NAME_MAX,
    PRIORITY_MAX,
    RETRIES_MAX,
    WAIT_S,
    Action,
    Gang,
    Group,
    IncompleteGang,
    Job,
    JobId,
    Match,
    Restart,
    Rule,
    Success,
)
from phalanx.core.model.orders import Why
from phalanx.errors import BadRequest, Unprocessable

GRACE_S = 5.0
GRACE_S_MAX = 86_400.0
RULES_MAX = 100
MANIFESTS_BYTES_MAX = 256 * 1024
GANG_ID_BYTES_MAX = 512 * GROUPS_MAX


class GangSpec(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How members start together; `gang: true` takes all of this as it stands here."""

    strict: bool = True
    match: Match = "once-satisfied"
    wait: float | str = WAIT_S  # how long members hold their places for the others
    affinity: str = ""
    id: str = ""


class RuleSpec(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a failure does if it matches; an empty list matches everything."""

    action: Action
    reasons: list[str] = []  # exited, signalled, oom, timeout, …
    patterns: list[str] = []  # regular expressions over the message
    groups: list[str] = []


class RestartSpec(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a task that failed for good does to the whole job."""

    whole: bool | None = None  # start every task anew; of a gang this is the default
    limit: int | None = None  # how often; without it, as often as max_retries says
    fails_job: bool = False
    shared: bool = False
    counts_evictions: bool = False
    rules: list[RuleSpec] = []


class SuccessSpec(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """When the job has done its work: every task of `groups` (all, if none is named), or any one of them."""

    any: bool = False
    groups: list[str] = []


class DraftSpec(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """That members of a gang are still to come, and what was read so far; `apply` of manifests writes it."""

    lacks: str
    manifests: str = ""
    needed: int = 0  # members it cannot start without; 0: not known
    members: int = 0  # that have come


class NetworkSpec(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The network of all tasks, and how they know each other: as HOST.SUBDOMAIN, which is the job's name by default."""

    mode: Network = "node"  # overlay: each task of every group has an address of its own
    subdomain: str = ""


class JobSpec(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One job. Durations are seconds or text such as 1h30m, sizes bytes or text such as 64GiB."""

    groups: list[GroupSpec]
    name: str = ""
    queue: str = "default"
    priority: int = 0
    gang: bool | GangSpec = False
    gather: list[GatherSpec] = []  # the order does not matter: the topology says which layer is inside which
    restart: RestartSpec | None = None
    success: SuccessSpec = SuccessSpec()
    max_retries: int | None = None  # of each task; of a gang, how often it starts anew as a whole
    time_limit: float | str | None = None
    grace: float | str | None = None  # between SIGTERM and SIGKILL
    preemption: Literal["lower", "never"] = (
        "lower"  # whom it may evict to get room: lower priorities, or nobody
    )
    evictable: bool = True
    min_run: float | str = 0  # how long an attempt runs before it may be evicted
    array: str | None = None  # "1-100%4": how the tasks of the only group are numbered
    object: str = ""  # what Kubernetes calls the job: namespace/name
    draft: DraftSpec | None = None  # of a gang: members are still to come, nothing of it starts
    tags: dict[str, str] = {}  # those of all groups
    applied: dict[
        str, str
    ] = {}  # objects of Kubernetes it was made from, and a digest of each; `apply` writes it
    after: list[str] = []  # jobs that come first: ID (completed), ID:any, ID:failed, ID:started, ID:each
    names: bool = False  # tasks know each other by name, as those of a gang do without it
    network: Network | NetworkSpec = "node"  # of all groups; a mapping has a subdomain as well
    begin: float | str | None = None  # not before then: 2027-01-31T08:00:00Z, 2h, or seconds since 1970
    hold: bool = False  # nothing of it starts before it is released
    params: dict[str, Any] = {}  # a sweep: each combination is a task of the only group
    each: list[Any] = []  # a sweep: each row is one


def to_job(spec: JobSpec, *, id: JobId, now: float, user: str, default_retries: int) -> Job:
    """The job a spec describes, or a refusal that names the field, its value and what would be right."""
    _check_labels(spec)
    params = read_params(spec.params, spec.each, None)
    if params is not None and (spec.gang is not False or [group.tasks for group in spec.groups] != [1]):
        raise BadRequest("params: a sweep has one group, without tasks of its own, and is not a gang")
    array = sweep_array(params, _array(spec))
    if spec.gang is not False:
        _check_gang_size(spec, array)
    groups = _groups(spec, array)
    check_templates(params, groups)
    known = {group.name for group in groups}
    gang = _gang(spec, groups)
    restart, retries = _restart(spec, known, default_retries, gang is not None)
    return Job(
        id=id,
        groups=groups,
        batch=id,
        submitted_at=now,
        name=spec.name,
        queue=spec.queue,
        priority=spec.priority,
        array=array,
        time_limit_s=None if spec.time_limit is None else read_duration("time_limit", spec.time_limit),
        max_retries=retries,
        grace_s=GRACE_S if spec.grace is None else read_span("grace", spec.grace, GRACE_S_MAX),
        user=user,
        gang=gang,
        restart=restart,
        success=Success(spec.success.any, _known(spec.success.groups, known, "success.groups")),
        may_evict=spec.preemption == "lower",
        evictable=spec.evictable,
        min_run_s=read_span("min_run", spec.min_run),
        object=spec.object,
        draft=_draft(spec),
        tags=read_tags("tags", spec.tags),
        applied=_applied(spec),
        after=read_after(spec.after),
        names=read_names(spec.names and gang is None, sum(group.tasks for group in groups)),
        subdomain=read_subdomain("network.subdomain", _network(spec).subdomain),
        begin_at=read_begin("begin", spec.begin, now),
        params=params,
    )


def _network(spec: JobSpec) -> NetworkSpec:
    return spec.network if isinstance(spec.network, NetworkSpec) else NetworkSpec(spec.network)


def _applied(spec: JobSpec) -> tuple[tuple[str, str], ...]:
    """Each is a kind and namespace/name, or a kind alone of an object whose name is made anew each time."""
    check_count("applied", len(spec.applied), TASKS_MAX)
    for key, digest in spec.applied.items():
        kind, space, name = key.partition(" ")
        if not (kind.isascii() and kind.isalpha() and len(kind) <= NAME_MAX):
            raise BadRequest(f"applied: {shown(key)} is not a kind and name, give such as 'Pod default/a'")
        if space:
            check_object("applied", name)
        check_text("applied", digest, TEXT_BYTES_MAX)
    return tuple(spec.applied.items())


def _draft(spec: JobSpec) -> IncompleteGang | None:
    if spec.draft is None:
        return None
    if spec.gang is False:
        raise BadRequest("draft: given without a gang: only a gang waits for members")
    if not spec.draft.lacks:
        raise BadRequest("draft.lacks: it is empty, say what the gang waits for")
    check_text("draft.lacks", spec.draft.lacks, TEXT_BYTES_MAX)
    check_text("draft.manifests", spec.draft.manifests, MANIFESTS_BYTES_MAX)
    check_number("draft.needed", spec.draft.needed, 0, TASKS_MAX)
    check_number("draft.members", spec.draft.members, 0, TASKS_MAX)
    return IncompleteGang(
        spec.draft.lacks, spec.draft.manifests, needed=spec.draft.needed, members=spec.draft.members
    )


def _check_labels(spec: JobSpec) -> None:
    if spec.name:
        check_job_name("name", spec.name)
    if spec.queue != "default":
        check_name("queue", spec.queue)
    if spec.object:
        check_object("object", spec.object)
    check_number("priority", spec.priority, -PRIORITY_MAX, PRIORITY_MAX)


def _array(spec: JobSpec) -> Array | None:
    if spec.array is None:
        return None
    if len(spec.groups) != 1:
        raise BadRequest(
            f"array: {shown(spec.array)} numbers the tasks of one group, and there are {len(spec.groups)}"
        )
    try:
        array = parse_array(spec.array)
    except ArrayError as error:
        raise BadRequest(str(error).replace("array ", "array: ", 1)) from None
    group = spec.groups[0]
    if group.tasks not in (1, len(array)):
        raise BadRequest(
            f"groups[0].tasks: {group.tasks} contradicts array {shown(spec.array)} with {len(array)} tasks"
        )
    if group.at_once and array.at_once and group.at_once != array.at_once:
        raise BadRequest(f"groups[0].at_once: {group.at_once} contradicts array {shown(spec.array)}")
    if group.replicas != 1:
        raise BadRequest(f"groups[0].replicas: {group.replicas} cannot go with an array, leave it out")
    return array


def _groups(spec: JobSpec, array: Array | None) -> tuple[Group, ...]:
    if not spec.groups:
        raise BadRequest("groups: there is none; give at least one, with a command")
    check_count("groups", len(spec.groups), GROUPS_MAX)
    listed = spec.groups
    if _network(spec).mode == "overlay":
        listed = [structs.replace(group, network="overlay") for group in listed]
    groups = tuple(
        to_group(group, f"groups[{number}].", alone=len(listed) == 1, array=array)
        for number, group in enumerate(listed)
    )
    total = sum(group.tasks for group in groups)
    if total > TASKS_MAX:
        raise BadRequest(f"groups: {total} tasks in all are too many, at most {TASKS_MAX} are allowed")
    check_after(groups)
    objects = [name for group in groups for name in group.objects]
    if len(set(objects)) < len(objects):
        raise BadRequest("groups: two of them give a task the same name in objects, each task needs its own")
    return groups


def _check_gang_size(spec: JobSpec, array: Array | None) -> None:
    """Members are looked at together, so a gang has fewer tasks than a job may have."""
    tasks = sum(group.tasks for group in spec.groups) if array is None else len(array)
    if tasks > GANG_TASKS_MAX:
        field = "array" if array is not None else "groups[0].tasks" if len(spec.groups) == 1 else "groups"
        raise Unprocessable(
            f"{field}: {shown(tasks)} tasks are too many for a gang, at most {GANG_TASKS_MAX} can start together",
            reason="OutOfRange",
            hint="leave out gang: true for tasks that may start one by one",
        )


def _gang(spec: JobSpec, groups: tuple[Group, ...]) -> Gang | None:
    if spec.gang is False:
        _refuse_contradictions(spec)
        return None
    options = GangSpec() if spec.gang is True else spec.gang
    is_spread = any(group.request.spread for group in groups)
    check_text("gang.id", options.id, GANG_ID_BYTES_MAX)
    if all(group.optional for group in groups):
        raise BadRequest(
            "groups: every group is optional, so the gang needs nobody: say which it cannot do without"
        )
    for number, group in enumerate(groups):
        if group.at_once and group.at_once * group.replicas < group.needed:
            raise BadRequest(
                f"groups[{number}].at_once: {group.at_once} lets at most {group.at_once * group.replicas} tasks hold a"
                f" place, and the gang needs {group.needed} of this group together: raise at_once or lower min"
            )
    return Gang(
        read_gather(spec.gather, is_spread=is_spread),
        options.strict,
        options.match,
        read_duration("gang.wait", options.wait),
        read_affinity(options.affinity, is_spread=is_spread),
        options.id,
    )


def _refuse_contradictions(spec: JobSpec) -> None:
    """What only a gang can have would be ignored in silence, so it is refused."""
    if spec.gather:
        raise BadRequest(
            "gather: given without a gang: add gang: true, so that the tasks are placed together"
        )
    for number, group in enumerate(spec.groups):
        if group.optional:
            raise BadRequest(
                f"groups[{number}].optional: given without a gang: without one no task waits for others"
            )
        if group.min:
            raise BadRequest(
                f"groups[{number}].min: {group.min} given without a gang: add gang: true, so that tasks start together"
            )


def _restart(spec: JobSpec, known: set[str], default: int, is_gang: bool) -> tuple[Restart, int]:
    """What failures do to the job, and the retries of each task by itself."""
    if spec.max_retries is not None:
        check_number("max_retries", spec.max_retries, 0, RETRIES_MAX)
    retries = default if spec.max_retries is None else spec.max_retries
    options = spec.restart or RestartSpec()
    whole = is_gang if options.whole is None else options.whole
    if options.limit is not None:
        check_number("restart.limit", options.limit, 0, RETRIES_MAX)
        restarts = [rule for rule in options.rules if rule.action != "fail"]
        if not whole and not restarts:
            raise BadRequest(
                f"restart.limit: {options.limit} given without whole: true, so nothing would be restarted"
            )
    limit, own = 0, retries
    if options.limit is not None:
        limit, own = options.limit, (spec.max_retries or 0) if whole else retries
    elif whole:
        limit, own = retries, 0
    rules = _rules(options.rules, known)
    return Restart(whole, limit, options.fails_job, options.shared, options.counts_evictions, rules), own


def _rules(rules: list[RuleSpec], known: set[str]) -> tuple[Rule, ...]:
    check_count("restart.rules", len(rules), RULES_MAX)
    budget = PatternBudget()
    return tuple(
        _rule(options, known, f"restart.rules[{number}]", budget) for number, options in enumerate(rules)
    )


def _rule(options: RuleSpec, known: set[str], field: str, budget: PatternBudget) -> Rule:
    reasons = {why.word for why in Why if why}
    for reason in options.reasons:
        if reason not in reasons:
            raise BadRequest(
                f"{field}.reasons: {shown(reason)} is unknown, give some of: {', '.join(sorted(reasons))}"
            )
    check_count(f"{field}.patterns", len(options.patterns), RULES_MAX)
    for pattern in options.patterns:
        budget.take(f"{field}.patterns", pattern)
    return Rule(
        options.action,
        tuple(options.reasons),
        tuple(options.patterns),
        _known(options.groups, known, f"{field}.groups"),
    )


def _known(names: list[str], known: set[str], field: str) -> tuple[str, ...]:
    for name in names:
        if name not in known:
            there = ", ".join(sorted(filter(None, known))) or "none has a name"
            raise BadRequest(f"{field}: there is no group {shown(name)} (groups: {there})")
    return tuple(names)
