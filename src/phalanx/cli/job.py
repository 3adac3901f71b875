"""`phalanx show`, `cancel`, `pause`, `resume`: one job or task at a time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from phalanx.api.schema import JobView, TaskView
from phalanx.cli.completion import job_ids
from phalanx.cli.output import OutputOption, emit, fields, note
from phalanx.cli.session import session
from phalanx.cli.text import clean_lines, moment, plural, size, span
from phalanx.core.model.quantity import describe_seconds
from phalanx.errors import PhalanxError

IdArgument = Annotated[str, typer.Argument(metavar="ID", autocompletion=job_ids)]
IdsArgument = Annotated[list[str], typer.Argument(metavar="ID...", autocompletion=job_ids)]


def show(ctx: typer.Context, id: IdArgument, output: OutputOption = None) -> None:
    """Show one job, or one task of an array by `job.index`."""
    here = session(ctx)
    client = here.client()
    chosen = here.output(output)
    if "." in id:
        task = client.task(id)
        emit(task, chosen, [task.id], lambda _wide: _task_lines(task))
        return
    job = client.job(id)
    only = client.task(job.id) if job.tasks == 1 and chosen in {"table", "wide"} else None
    emit(job, chosen, [job.id], lambda _wide: _job_lines(job, only))


def cancel(ctx: typer.Context, ids: IdsArgument, output: OutputOption = None) -> int:
    """Cancel jobs or tasks, waiting or running."""
    here = session(ctx)
    client, chosen = here.client(), here.output(output)
    replies, code = [], 0
    for id in ids:
        try:
            replies.append(client.cancel(id))
        except (
            PhalanxError
        ) as error:  # The others are still to be cancelled; the first error decides the code.
            note(f"error: {error.detail}")
            code = code or error.exit_code
    lines = [
        f"{each.id} cancelled ({plural(each.cancelled, 'task')}, {each.stopping} being stopped)"
        for each in replies
    ]
    emit(replies, chosen, [each.id for each in replies], lambda _wide: lines)
    return code


def pause(ctx: typer.Context, id: IdArgument, output: OutputOption = None) -> None:
    """Freeze a running task. It keeps what it was given."""
    here = session(ctx)
    task = here.client().pause(id)
    emit(task, here.output(output), [task.id], lambda _wide: [f"{task.id} paused"])


def resume(ctx: typer.Context, id: IdArgument, output: OutputOption = None) -> None:
    """Let a paused task go on."""
    here = session(ctx)
    task = here.client().resume(id)
    emit(task, here.output(output), [task.id], lambda _wide: [f"{task.id} goes on"])


def _job_lines(job: JobView, only: TaskView | None) -> Iterable[str]:
    asked, counts = job.request, job.counts
    yield from fields(
        [
            ("Job", job.id),
            ("Name", job.name),
            ("Batch", job.batch_id if job.batch_id != job.id else None),
            ("User", job.user),
            ("Queue", f"{job.queue}, priority {job.priority}"),
            ("Status", f"{job.status} ({job.reason})" if job.reason else job.status),
            ("Exit code", job.exit_code),
            ("Tasks", _counted(counts.__struct_fields__, counts) if job.tasks > 1 else None),
            ("Array", job.array),
            ("Command", " ".join(job.command)),
            ("Folder", job.cwd),
            ("Variables", " ".join(f"{name}={value}" for name, value in job.env.items())),
            ("Cores", asked.cores),
            ("Memory", size(asked.memory_bytes) if asked.memory_bytes else None),
            ("GPUs", f"{asked.gpus} {asked.gpu_type or ''}" if asked.gpus else None),
            ("GPU memory", size(asked.gpu_memory_bytes) if asked.gpu_memory_bytes else None),
            ("Target", asked.target),
            ("Time limit", describe_seconds(job.time_limit_s) if job.time_limit_s else None),
            ("Retries", job.max_retries),
            ("Submitted", moment(job.submitted_at)),
            ("Started", moment(job.started_at)),
            ("Ended", moment(job.ended_at)),
            ("Took", span(job.started_at, job.ended_at)),
        ]
    )
    if only is not None:
        yield from _newest_attempt(only)


def _task_lines(task: TaskView) -> Iterable[str]:
    yield from fields(
        [
            ("Task", task.id),
            ("Job", task.job_id),
            ("Name", task.name),
            ("Index", task.index),
            ("Status", f"{task.status} ({task.reason})" if task.reason else task.status),
            ("Exit code", task.exit_code),
            ("Submitted", moment(task.submitted_at)),
            ("Started", moment(task.started_at)),
            ("Ended", moment(task.ended_at)),
        ]
    )
    yield from _newest_attempt(task)


def _newest_attempt(task: TaskView) -> Iterable[str]:
    yield from fields(
        [
            ("Attempt", task.attempt),
            ("Node", task.node),
            ("Devices", ", ".join(map(str, task.devices))),
            ("NUMA node", task.target_numa_node_id),
            ("Paused", "yes" if task.paused else None),
            ("Retries used", task.retries_used),
            ("Losses", task.losses or None),
            ("Next try", moment(task.retry_at) if task.retry_at else None),
            ("Message", task.message),
        ]
    )
    if task.stderr_tail:
        yield "Last lines of standard error:"
        yield from (f"  {line}" for line in clean_lines(task.stderr_tail).splitlines())


def _counted(names: Iterable[str], counts: object) -> str:
    return ", ".join(f"{getattr(counts, name)} {name}" for name in names if getattr(counts, name))
