"""The command that submits a job again, in one line."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from phalanx.core.model.amounts import format_bytes, utc
from phalanx.core.model.containers import OF_RUNTIMES
from phalanx.core.model.job import WAIT_S, Command, Gang, Gather, Group, Job, Restart, Success
from phalanx.core.model.resources import ISOLATED, Request

LINE_MAX = 400
RETRIES = 3  # what `phalanx submit` gives if it is not told otherwise
_DEFAULT = Job("", (), "", 0.0)


def submit_line(job: Job) -> str | None:
    """The `phalanx submit` that makes this job; None if options do not say all of it, or not in one short line.

    An environment is not told: what it holds may be secret.
    """
    group = job.groups[0]
    if not _is_plain(job, group):
        return None
    words = ["phalanx", "submit", *_of_request(group.request), *_of_gang(job, group), *_of_job(job)]
    line = shlex.join([*words, *_of_command(group.command), "--", *group.command.argv])
    return line if len(line) <= LINE_MAX and line.isprintable() else None


def _is_plain(job: Job, group: Group) -> bool:
    """Whether nothing is set that only a job file, a manifest or another language can set."""
    known = Group(group.command, group.request, tasks=group.tasks, min=group.min, at_once=group.at_once)
    gang = job.gang
    is_one = gang is None and (job.array is not None or group.tasks == 1)
    is_gang = gang is not None and gang == Gang(gang.gather, wait_s=gang.wait_s) and group.tasks > 1
    restart = Restart() if gang is None else Restart(whole=True, limit=job.restart.limit)
    return (
        len(job.groups) == 1
        and group == known
        and (is_one or is_gang)
        and job.restart == restart
        and (gang is None or not job.max_retries)
        and job.success == Success()
        and job.draft is None
        and job.workflow is None
        and not (job.object or job.applied or group.command.env)
        and (group.command.cwd is not None or bool(group.command.image))
    )


def _of_command(command: Command) -> Iterator[str]:
    if command.cwd is not None:
        yield from ("--cwd", command.cwd)
    if command.image:
        yield from ("--image", command.image)
    for mount in command.mounts:
        yield from ("--mount", mount)
    if command.split_output:
        yield "--split-output"


def _of_request(request: Request) -> Iterator[str]:
    has_devices = request.target is not None and bool(request.target.devices)
    if request.target is not None:
        yield from ("-t", str(request.target))
    if request.cores != 1:
        yield from ("-c", str(request.cores))
    if request.memory_bytes:
        yield from ("-m", format_bytes(request.memory_bytes))
    if request.gpus and not has_devices:
        yield from ("--gpus", str(request.gpus))
    if request.gpu_type is not None:
        yield from ("--gpu-type", request.gpu_type)
    if request.gpu_memory_bytes:
        yield from ("--gpu-memory", format_bytes(request.gpu_memory_bytes))
    if request.exclusive:
        yield "--exclusive"
    if request.spread:
        yield "--spread"
    for option, names in (("--nodes", request.nodes), ("--exclude", request.exclude)):
        if names:
            yield from (option, ",".join(names))
    for name, value in request.labels:
        if (name, value) == ISOLATED:
            yield "--require-isolation"
        elif (name, value) not in OF_RUNTIMES:
            yield from ("-l", f"{name}={value}")


def _of_gang(job: Job, group: Group) -> Iterator[str]:
    if job.array is not None:
        yield from ("--array", str(job.array))
    if job.gang is None:
        return
    yield from ("--tasks", str(group.tasks))
    if group.min:
        yield from ("--min", str(group.min))
    for rule in job.gang.gather:
        yield from ("--gather", _rule(rule))
    if job.gang.wait_s != WAIT_S:
        yield from ("--gang-wait", _seconds(job.gang.wait_s))


def _of_job(job: Job) -> Iterator[str]:
    retries = job.max_retries if job.gang is None else job.restart.limit
    options: list[tuple[str, object, object, str]] = [
        ("-n", job.name, _DEFAULT.name, job.name),
        ("-q", job.queue, _DEFAULT.queue, job.queue),
        ("--priority", job.priority, _DEFAULT.priority, str(job.priority)),
        ("--time-limit", job.time_limit_s, None, _seconds(job.time_limit_s or 0.0)),
        ("--grace", job.grace_s, _DEFAULT.grace_s, _seconds(job.grace_s)),
        ("--retries", retries, RETRIES, str(retries)),
        ("--preemption", job.may_evict, True, "never"),
        ("--min-run", job.min_run_s, 0.0, _seconds(job.min_run_s)),
    ]
    for option, value, default, text in options:
        if value != default:
            yield from (option, text)
    if not job.evictable:
        yield "--not-evictable"
    for after in job.after:
        yield from ("--after", str(after))
    if job.begin_at:
        yield from ("--begin", utc(job.begin_at))
    for name, value in job.tags:
        yield from ("--tag", f"{name}={value}")


def _rule(rule: Gather) -> str:
    word = ":must" if rule.must else ":prefer" if rule.multiple > 1 else ""
    return rule.layer + word + (f":{rule.multiple}" if rule.multiple > 1 else "")


def _seconds(value: float) -> str:
    return f"{int(value)}s" if value == int(value) else f"{value}s"
