"""Submissions: what is asked and answered, and how one `SubmitRequest` becomes jobs, or a refusal that names the field.

Checked here is all that can be known without the cluster: words, limits, and fields that contradict each
other. Whether a node or a queue exists, and whether there is room, the coordinator says. A target that cannot
be read refuses only itself, so that the other targets of the request still get their jobs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from msgspec import Struct, structs

from phalanx.api.schema.begin import read_begin
from phalanx.api.schema.dependencies import read_after
from phalanx.api.schema.documents import FailedTarget
from phalanx.api.schema.exports import check_exported
from phalanx.api.schema.fields import (
    check_job_name,
    check_name,
    check_number,
    check_text,
    read_duration,
    read_span,
    read_tags,
    shown,
)
from phalanx.api.schema.groupspec import (
    GatherSpec,
    GroupSpec,
    Network,
    check_target,
    read_gather,
    read_names,
    read_subdomain,
    to_group,
)
from phalanx.api.schema.jobspec import GRACE_S, GRACE_S_MAX
from phalanx.api.schema.params import check_templates, read_params, sweep_array
from phalanx.api.schema.targets import Place, read_places
from phalanx.core.model.array import TASKS_MAX, Array, ArrayError, parse_array
from phalanx.core.model.job import (
    GANG_TASKS_MAX,
    PRIORITY_MAX,
    RETRIES_MAX,
    WAIT_S,
    After,
    Gang,
    Group,
    Job,
    Restart,
    Vps,
)
from phalanx.core.model.parameters import Params, SweepRows
from phalanx.core.model.resources import Cores, Target
from phalanx.errors import BadRequest, Unprocessable

REQUEST_ID_BYTES_MAX = 255
TOKEN_BYTES_MAX = 128
VPS_RETRIES = 60_000  # a failed VPS is tried again, with pauses; attempts of a task are counted to 65,535
VPS_PROGRAM = "phalanx-vps"  # stands for the runner's own; a runner that knows no VPS does not find it


class SubmitRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One submission. Give `command` (an argv list) or `shell` (one string for /bin/sh), not both."""

    command: list[str] = []
    shell: str | None = None
    kind: Literal["command", "vps"] = "command"
    targets: list[str] = []  # one task per target, one batch
    required_gpus: list[list[int]] | None = None  # device indexes, one list per target
    cores: Cores = 1
    memory: int | str = 0  # bytes, or "16GiB"
    gpus: int = 0
    gpu_type: str | None = None
    gpu_memory: int | str = 0  # per device
    priority: int = 0
    queue: str = "default"
    array: str | None = None  # "1-100%4"
    name: str = ""
    env: dict[str, str] = {}
    exported: dict[str, str] = {}  # the caller's environment: weaker than `env` and than all that we set
    cwd: str | None = None
    time_limit: float | str | None = None  # seconds, or "1h30m"
    grace: float | str | None = None  # between SIGTERM and SIGKILL
    max_retries: int | None = None  # runs after the first
    max_attempts: int | None = None  # runs in all; not together with max_retries
    no_queue: bool = False  # refuse at once what cannot start now
    allow_infeasible: bool = False  # wait even if no node of today could ever hold it
    request_id: str | None = None  # the same as the Idempotency-Key header
    tasks: int = 1  # more than 1 makes a gang: its tasks start together or not at all
    min: int = 0  # how many tasks a gang cannot start without; 0: all
    gather: list[GatherSpec] = []  # how close the tasks of a gang stand
    gang_wait: float | str | None = None  # how long tasks of a gang hold their places for the others
    labels: dict[str, str] = {}  # what the node must carry
    require_isolation: bool = False  # only nodes that hold tasks to all that they were granted
    nodes: list[str] = []  # only on these nodes; empty: on any
    exclude: list[str] = []  # on none of these
    exclusive: bool = False  # each task has a node for itself: an empty one, of which it is given all
    spread: bool = False  # tasks are put on as many different nodes as there is room on
    preemption: Literal["lower", "never"] = "lower"  # whom it may evict: lower priorities, or nobody
    evictable: bool = True
    min_run: float | str = 0  # how long an attempt runs before it may be evicted
    tags: dict[str, str] = {}  # what `ps -l` selects by
    after: list[str] = []  # jobs that come first: ID (completed), ID:any, ID:failed, ID:started, ID:each
    network: Network = "node"  # overlay: each task has an address of its own
    ip_token: str | None = None  # of a reservation: its only task has that address
    names: bool = False  # tasks of an array know each other by name, as members of a gang do
    subdomain: str = ""  # of those names; empty: the name of the job
    image: str = ""  # a container: a name in a registry, /path/image.tar, or rootfs:/path; `cwd` is in it
    mounts: list[str] = []  # what of the node the container sees: SRC:DST[:ro], where the node allows it
    begin: float | str | None = None  # not before then: 2027-01-31T08:00:00Z, 2h, or seconds since 1970
    hold: bool = False  # nothing of it starts before it is released
    split_output: bool = False  # two logs, of standard output and standard error, instead of one
    params: dict[str, Any] = {}  # a sweep: each combination is a task; a list, or text: "0.1,0.01", "1..5"
    each: list[Any] = []  # a sweep: each row is a task; objects with the same keys, or single values ({line})
    rows: str | None = None  # a sweep whose rows were sent before, by the name of that upload
    at_once: int = 0  # how many tasks of a sweep may run at once; 0: all
    attached: bool = False  # a client shows its output: the task is stopped while that is far behind
    stdin: bool = False  # a client gives the first task standard input; without, it is empty


class AcceptedTask(Struct, omit_defaults=True):
    """What was accepted for one target (or for the whole request, without targets)."""

    id: str
    tasks: int = 1  # more than 1 for an array
    target: str | None = None
    number: int = 0  # by arrival; it names the job wherever its id does


class SubmitReply(Struct, omit_defaults=True):
    """Durable when you read this. `task_ids` holds one id per accepted target; `batch_id` is the first."""

    task_ids: list[str]
    batch_id: str
    accepted: list[AcceptedTask]
    failed_targets: list[FailedTarget] = []
    assigned_node: str | None = None  # the node, when exactly one target was given
    warnings: list[str] = []  # what was read otherwise than written, or changes nothing
    replayed: bool = False  # true when the same request_id had been answered before


def to_jobs(
    request: SubmitRequest,
    *,
    new_id: Callable[[], str],
    now: float,
    user: str,
    default_retries: int,
    vps: Vps | None = None,
    rows: SweepRows | None = None,
) -> tuple[list[tuple[str | None, Job]], list[FailedTarget]]:
    """One job per target that can be read (or one job, without targets), and the targets that cannot.

    A VPS that is submitted with no more said about it has no SSH. `rows` are those that `request.rows` names.
    """
    if request.kind == "vps":
        _check_vps(request)
        vps, default_retries = vps or Vps("disabled"), VPS_RETRIES
    _check_labels(request)
    gang, retries = _gang(request), _retries(request, default_retries)
    params, array = _sweep(request, rows)
    common = Job(
        id="",
        groups=(),
        batch="",
        submitted_at=now,
        name=request.name,
        queue=request.queue,
        priority=request.priority,
        array=array,
        time_limit_s=None if request.time_limit is None else read_duration("time_limit", request.time_limit),
        max_retries=retries if gang is None else 0,
        grace_s=GRACE_S if request.grace is None else read_span("grace", request.grace, GRACE_S_MAX),
        user=user,
        gang=gang,
        restart=Restart() if gang is None else Restart(whole=True, limit=retries),
        may_evict=request.preemption == "lower",
        evictable=request.evictable and vps is None,
        min_run_s=read_span("min_run", request.min_run),
        tags=read_tags("tags", request.tags),
        after=_after(request),
        names=read_names(request.names, request.tasks if array is None else len(array)),
        subdomain=read_subdomain("subdomain", request.subdomain),
        vps=vps,
        begin_at=_begin(request, now),
        params=params,
    )
    _check_ip_token(request)
    places, failed = read_places(request.targets, request.required_gpus)
    jobs = _aimed(request, common, places, new_id)
    if jobs:
        check_templates(params, jobs[0][1].groups, "command" if request.shell is None else "shell")
    if not places:  # every target failed; what else is wrong is still told first
        _group(request, request.gpus, common.array)
    return jobs, failed


def _aimed(
    request: SubmitRequest, common: Job, places: list[Place], new_id: Callable[[], str]
) -> list[tuple[str | None, Job]]:
    """A job for each target; the first gives its id to the whole batch."""
    groups: dict[int, Group] = {}  # by the number of devices, so that a long command is read once
    jobs: list[tuple[str | None, Job]] = []
    for text, target in places:
        check_target("", request.nodes, request.exclusive, request.spread, target)
        id, gpus = new_id(), _gpus(request, target, text)
        group = groups.get(gpus) or groups.setdefault(gpus, _group(request, gpus, common.array))
        aimed = structs.replace(group, request=structs.replace(group.request, target=target))
        batch = jobs[0][1].id if jobs else id
        jobs.append((text, structs.replace(common, id=id, batch=batch, groups=(aimed,))))
    return jobs


def check_request_id(request_id: str) -> None:
    """Refuse a request id that is empty, long, or not plain printable ASCII."""
    plain = request_id.isascii() and request_id.isprintable()
    if not (plain and 0 < len(request_id) <= REQUEST_ID_BYTES_MAX):
        raise BadRequest(
            f"request_id: {shown(request_id)} cannot be used: write 1 to {REQUEST_ID_BYTES_MAX} printable"
            " ASCII characters, such as a UUID"
        )


def _check_vps(request: SubmitRequest) -> None:
    """A VPS is one task that runs until it is stopped, and its program is the runner's own."""
    if len(request.targets) > 1:
        raise BadRequest(
            f"targets: VPS tasks cannot be submitted to multiple targets, and {len(request.targets)} are given",
            reason="VpsTargets",
        )
    given: dict[str, object] = {
        "command": request.command,
        "shell": request.shell,
        "array": request.array,
        "tasks": request.tasks > 1,
        "time_limit": request.time_limit,
        "max_retries": request.max_retries is not None,
        "max_attempts": request.max_attempts,
        "after": request.after,
        "begin": request.begin,
        "names": request.names,
        "params": request.params,
        "each": request.each,
        "rows": request.rows,
    }
    if wrong := [field for field, value in given.items() if value]:
        raise BadRequest(
            f"{wrong[0]}: a VPS has none: it is one task without a command of its own, and runs until it is stopped"
        )


def _sweep(request: SubmitRequest, rows: SweepRows | None) -> tuple[Params | None, Array | None]:
    """The parameters of a submission, and the array that it makes, of a sweep or by itself."""
    params = read_params(request.params, request.each, rows)
    check_number("at_once", request.at_once, 0, TASKS_MAX)
    if params is None:
        if request.at_once:
            raise BadRequest("at_once: given without parameters: of an array, write 1-100%4")
    elif request.tasks != 1:
        raise BadRequest(
            f"tasks: {request.tasks} start together, and those of a sweep one by one: give one of them"
        )
    return params, sweep_array(params, _array(request), request.at_once)


def _check_ip_token(request: SubmitRequest) -> None:
    if request.ip_token is None:
        return
    check_text("ip_token", request.ip_token, TOKEN_BYTES_MAX)
    if request.tasks != 1 or request.array is not None or len(request.targets) > 1:
        raise BadRequest("ip_token: it is for one task on one node, and several are to be started")


def _check_labels(request: SubmitRequest) -> None:
    check_exported(request.exported, "exported")
    if request.name:
        check_job_name("name", request.name)
    if request.queue != "default":
        check_name("queue", request.queue)
    if request.request_id is not None:
        check_request_id(request.request_id)
    check_number("priority", request.priority, -PRIORITY_MAX, PRIORITY_MAX)


def _array(request: SubmitRequest) -> Array | None:
    if request.array is None:
        return None
    try:
        return parse_array(request.array)
    except ArrayError as error:
        raise BadRequest(str(error)) from None


def _retries(request: SubmitRequest, default: int) -> int:
    if request.max_retries is not None and request.max_attempts is not None:
        raise BadRequest(
            "max_retries and max_attempts: give one of them, not both (max_attempts counts the first run too)"
        )
    if request.max_attempts is not None:
        check_number("max_attempts", request.max_attempts, 1, RETRIES_MAX + 1)
        return request.max_attempts - 1
    if request.max_retries is None:
        return default
    check_number("max_retries", request.max_retries, 0, RETRIES_MAX)
    return request.max_retries


def _group(request: SubmitRequest, gpus: int, array: Array | None) -> Group:
    spec = GroupSpec(
        tasks=request.tasks,
        min=request.min,
        command=[VPS_PROGRAM] if request.kind == "vps" else request.command,
        shell=request.shell,
        cores=request.cores,
        memory=request.memory,
        gpus=gpus,
        gpu_type=request.gpu_type,
        gpu_memory=request.gpu_memory,
        labels=request.labels,
        require_isolation=request.require_isolation,
        nodes=request.nodes,
        exclude=request.exclude,
        exclusive=request.exclusive,
        spread=request.spread,
        env=request.env,
        cwd=None if request.kind == "vps" else request.cwd,  # the home of a VPS is its folder
        network=request.network,
        image=request.image,
        mounts=request.mounts,
        split_output=request.split_output,
        attached=request.attached,
        stdin=request.stdin,
    )
    return to_group(spec, "", alone=True, array=array)


def _after(request: SubmitRequest) -> tuple[After, ...]:
    if request.after and request.no_queue:
        raise BadRequest(
            "no_queue and after: what starts now or not at all cannot start after others: give one of them"
        )
    return read_after(request.after)


def _begin(request: SubmitRequest, now: float) -> float:
    if request.no_queue and (request.hold or request.begin is not None):
        what = "hold" if request.hold else "begin"
        raise BadRequest(f"no_queue and {what}: what starts now or not at all cannot start later: give one")
    return read_begin("begin", request.begin, now)


def _gang(request: SubmitRequest) -> Gang | None:
    if request.tasks > GANG_TASKS_MAX:
        raise Unprocessable(
            f"tasks: {shown(request.tasks)} are too many for a gang, at most {GANG_TASKS_MAX} can start together",
            reason="OutOfRange",
            hint="tasks that may start one by one are an array, such as 1-1000000",
        )
    check_number("tasks", request.tasks, 1, GANG_TASKS_MAX)
    if request.tasks == 1:
        for field, given in (
            ("min", request.min),
            ("gather", request.gather),
            ("gang_wait", request.gang_wait),
        ):
            if given:
                raise BadRequest(
                    f"{field}: given for a job of one task: give tasks as well, how many there are in all"
                )
        return None
    if request.array is not None:
        raise BadRequest(
            f"tasks and array: {request.tasks} tasks start together, those of array {shown(request.array)} one by"
            " one: give one of them"
        )
    if len(request.targets) > 1:
        raise BadRequest(
            f"tasks and targets: {request.tasks} tasks that start together go where there is room, or all to one"
            f" target; {len(request.targets)} are given"
        )
    if request.no_queue:
        raise BadRequest(
            f"no_queue: it is for one task, and {request.tasks} are to start together",
            hint="phalanx plan says whether they would start now",
        )
    wait_s = WAIT_S if request.gang_wait is None else read_duration("gang_wait", request.gang_wait)
    return Gang(read_gather(request.gather, is_spread=request.spread), wait_s=wait_s)


def _gpus(request: SubmitRequest, target: Target | None, text: str | None) -> int:
    """How many devices a task gets there; those that a target names are the count."""
    named = len(target.devices) if target is not None else 0
    if named and request.gpus not in (0, named):
        raise BadRequest(f"gpus: {request.gpus} contradicts target {shown(text)} with {named} named devices")
    return named or request.gpus
