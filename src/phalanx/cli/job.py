"""`phalanx show`, `evict`, `pause`, `resume`: one job or task at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import typer
from msgspec import to_builtins

from phalanx.api.schema.jobs import JobView, TaskView
from phalanx.cli.completion import job_ids
from phalanx.cli.job_names import shown_id
from phalanx.cli.job_table import job_status, tags_text
from phalanx.cli.labels import label
from phalanx.cli.members import condition_lines, counted, gang_fields, group_lines, restarts
from phalanx.cli.output import (
    OutputOption,
    clean,
    clean_lines,
    emit,
    fields,
    moment,
    size,
    span,
    tell_error,
)
from phalanx.cli.session import session
from phalanx.cli.shell_exits import shell_code
from phalanx.cli.usage_table import usage_fields
from phalanx.clock import SystemClock
from phalanx.core.model.amounts import describe_seconds, plural
from phalanx.core.model.template import fill, with_index
from phalanx.errors import Conflict, NotFound, PhalanxError
from phalanx.settings import Output

if TYPE_CHECKING:
    from phalanx.client.client import Client

T = TypeVar("T")
IdArgument = Annotated[str, typer.Argument(metavar="ID", autocompletion=job_ids)]
IdsArgument = Annotated[list[str], typer.Argument(metavar="ID...", autocompletion=job_ids)]


def show(
    ctx: typer.Context,
    id: IdArgument,
    env: Annotated[
        bool, typer.Option("--env", help="Show the variables it was submitted with, and their values.")
    ] = False,
    output: OutputOption = None,
) -> None:
    """Show one job, or one task of an array by `job.index`; also a workflow, or a node."""
    here = session(ctx)
    client = here.client()
    try:
        _show(client, shown_id(client, id), here.output(output), env=env)
    except NotFound as error:
        if env or not _show_another(ctx, client, id, output, error):
            raise


def _show_another(
    ctx: typer.Context, client: Client, id: str, output: Output | None, error: NotFound
) -> bool:
    """Show the workflow or the node of this name, where there is no such job; False if there is none either."""
    if error.reason == "IsWorkflow":
        from phalanx.cli.workflow import show as show_workflow

        show_workflow(ctx, id, output)
        return True
    if error.reason != "JobNotFound":
        return False
    from phalanx.cli.node import show as show_node

    try:
        client.node(id)
    except PhalanxError:  # nor is there such a node, or it may not be asked: there is no such job
        return False
    show_node(ctx, id, output)
    return True


def _show(client: Client, id: str, chosen: Output, *, env: bool) -> None:
    if env:
        found = client.environment(id)
        whole = dict(sorted({**found.exported, **found.env}.items()))
        emit(found, chosen, list(whole), lambda _wide: [clean(f"{k}={v}") for k, v in whole.items()])
        return
    if "." in id:  # a task of an array or of a gang
        task = client.task(id)
        command = [] if task.index is None else _own_command(client.job(task.job_id).command, task)
        emit(task, chosen, [label(task)], lambda _wide: _task_lines(task, command))
        return
    job = client.job(id)
    only = client.task(job.id) if job.tasks == 1 and chosen != "name" else None
    emit(_with_task(job, only), chosen, [label(job)], lambda _wide: job_lines(job, only))


def id_of(client: Client, name: str) -> str:
    """The id of a Kubernetes name such as default/pod-1; anything else is an id already."""
    return client.named(name).id if "/" in name else name


def _with_task(job: JobView, only: TaskView | None) -> Any:
    """A job; if it has one task, with what is said of that: its node, attempt, devices, message and conditions."""
    return job if only is None else to_builtins(only) | to_builtins(job)


def evict(ctx: typer.Context, ids: IdsArgument, output: OutputOption = None) -> int:
    """Preempt running jobs or tasks.

    They get their grace period, then are queued again or fail, as their restart policy says.
    """
    here = session(ctx)
    replies, code = each_of(here.client().evict, ids)
    lines = [f"{label(each)}: {plural(each.evicted, 'task')} being evicted" for each in replies]
    emit(replies, here.output(output), [label(each) for each in replies], lambda _wide: lines)
    return code


def pause(ctx: typer.Context, id: IdArgument, output: OutputOption = None) -> None:
    """Pause a running task. Its resources stay allocated."""
    here = session(ctx)
    task = here.client().pause(id)
    emit(task, here.output(output), [label(task)], lambda _wide: [f"{label(task)} paused"])


def resume(ctx: typer.Context, id: IdArgument, output: OutputOption = None) -> None:
    """Resume a paused task, or release a job that is held."""
    here = session(ctx)
    client = here.client()
    try:
        task = client.resume(id)
    except Conflict as error:
        if error.reason != "Held":
            raise
        job = client.release(id)
        emit(job, here.output(output), [label(job)], lambda _wide: [f"{label(job)} released"])
        return
    emit(task, here.output(output), [label(task)], lambda _wide: [f"{label(task)} resumed"])


def each_of(act: Callable[[str], T], ids: list[str]) -> tuple[list[T], int]:
    """Act on each. After an error the others still have their turn; the first error decides the exit code."""
    replies: list[T] = []
    code = 0
    for id in ids:
        try:
            replies.append(act(id))
        except PhalanxError as error:
            tell_error(error.detail, error.hint)
            code = code or error.exit_code
    return replies, code


def job_lines(job: JobView, only: TaskView | None) -> Iterable[str]:
    """A job in lines; with `only`, its one task too."""
    alone = len(job.groups) <= 1  # otherwise each group has its own, in a table below
    asked = job.request
    rows: list[tuple[str, object]] = [
        ("Job", f"{label(job)} ({job.id})"),
        ("Name", job.name),
        ("Object", job.object),
        ("Batch", job.batch_id if job.batch_id != job.id else None),
        ("User", job.user),
        ("Queue", f"{job.queue}, priority {job.priority}"),
        ("Status", f"{job_status(job)} ({job.reason})" if job.reason else job_status(job)),
        ("Held", job.held),
        ("After", ", ".join(job.after_numbers or job.after)),
        ("Begins", moment(job.begin_at) if job.begin_at else None),
        ("Exit code", shell_code(job.exit_code, job.reason)),
        ("Tasks", counted(job.counts, job.finished) if job.tasks > 1 else None),
        ("Array", job.array),
        ("Parameters", "; ".join(f"{name}={values}" for name, values in job.params.items())),
        ("Command", " ".join(job.command) if alone else None),
        ("Image", job.image or None),
        ("Mounts", " ".join(job.mounts) or None),
        ("Folder", job.cwd),
        ("Variables", " ".join(job.env) if alone else None),
        ("Exported", f"{plural(len(job.exported), 'variable')}, see --env" if job.exported else None),
        ("Cores", asked.cores if alone else None),
        ("Memory", size(asked.memory_bytes) if alone and asked.memory_bytes else None),
        ("GPUs", f"{asked.gpus} {asked.gpu_type or ''}".rstrip() if alone and asked.gpus else None),
        ("GPU memory", size(asked.gpu_memory_bytes) if alone and asked.gpu_memory_bytes else None),
        ("Target", asked.target if alone else None),
        ("Labels", ", ".join(f"{key}={value}" for key, value in asked.labels.items()) if alone else None),
        ("Isolation", "required" if alone and asked.require_isolation else None),
        ("Only on", ", ".join(asked.nodes) if alone else None),
        ("Not on", ", ".join(asked.exclude) if alone else None),
        ("Exclusive", "a node for each task" if alone and asked.exclusive else None),
        ("Spread", "over as many nodes as possible" if alone and asked.spread else None),
        ("Tags", tags_text(job)),
        ("Time limit", describe_seconds(job.time_limit_s) if job.time_limit_s else None),
        ("Retries", _retries(job) if job.restart_limit is None else None),
        ("Restarts", restarts(job)),
        ("Revision", job.revision or None),
        ("Submitted", moment(job.submitted_at)),
        ("Started", moment(job.started_at)),
        ("Ended", moment(job.ended_at)),
        ("Took" if job.ended_at else "Elapsed", _elapsed(job)),
        ("Next try", moment(job.retry_at) if job.retry_at else None),
        *gang_fields(job),
    ]
    is_plain = len(job.groups) <= 1 and job.gang is None
    yield from fields([*rows, *(_attempt_fields(only) if only is not None and is_plain else [])])
    if not is_plain:
        yield from group_lines(job)
    if only is not None:
        yield from _attempt_end(only) if is_plain else _newest_attempt(only)


def _elapsed(job: JobView) -> str | None:
    """How long it took, or has been running."""
    if job.started_at is None:
        return None
    return span(job.started_at, job.ended_at or SystemClock().now())


def _retries(job: JobView) -> str:
    """How often a task may be tried again, and how many failures there were."""
    used = f" ({plural(job.failures, 'failure')} so far)" if job.failures else ""
    return f"{job.max_retries}{used}"


def _own_command(command: list[str], task: TaskView) -> list[str]:
    """The command of a task of an array, with its parameters or its index."""
    if task.params:
        return fill(command, task.params, task.index)
    return (None if task.index is None else with_index(command, task.index)) or command


def _task_lines(task: TaskView, command: list[str]) -> Iterable[str]:
    yield from fields(
        [
            ("Task", f"{label(task)} ({task.id})"),
            ("Name", task.name),
            ("Object", task.object),
            ("Index", task.index),
            ("Group", task.group),
            ("Rank", task.rank),
            ("Parameters", " ".join(f"{name}={value}" for name, value in task.params.items())),
            ("Command", " ".join(command) or None),
            ("Status", f"{task.status} ({task.reason})" if task.reason else task.status),
            ("Preparing", task.preparing or None),
            ("Exit code", shell_code(task.exit_code, task.reason)),
            ("Submitted", moment(task.submitted_at)),
            ("Started", moment(task.started_at)),
            ("Ended", moment(task.ended_at)),
            *_attempt_fields(task),
        ]
    )
    yield from _attempt_end(task)


def _newest_attempt(task: TaskView) -> Iterable[str]:
    yield from fields(_attempt_fields(task))
    yield from _attempt_end(task)


def _attempt_fields(task: TaskView) -> list[tuple[str, object]]:
    return [
        ("Attempt", task.attempt),
        ("Node", task.node),
        ("Nominated", task.nominated_node),
        ("Devices", ", ".join(map(str, task.devices))),
        ("Address", task.address),
        ("NUMA node", task.target_numa_node_id),
        ("Paused", "yes" if task.paused else None),
        ("Retries used", task.retries_used),
        ("Losses", task.losses or None),
        ("Next try", moment(task.retry_at) if task.retry_at else None),
        ("Message", task.message),
        ("Result", None if task.result is None else clean(msgspec.json.encode(task.result).decode())),
        ("Result error", task.result_error or None),
        *usage_fields(task.usage),
    ]


def _attempt_end(task: TaskView) -> Iterable[str]:
    yield from map(clean, condition_lines(task))
    if task.stderr_tail:
        yield "Last lines of its log:"
        yield from (f"  {line}" for line in clean_lines(task.stderr_tail).splitlines())
