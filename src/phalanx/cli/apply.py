"""`phalanx apply`: job files and Kubernetes manifests, handed in whole.

What the files hold is read by `phalanx.manifests`, whether it can run is said by the coordinator. Cautions go to
standard error; with --strict the first of them is an error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, TypeVar

import typer
from msgspec import structs

from phalanx.api.schema.apply import ApplyReply, ApplyRequest
from phalanx.api.schema.cluster import to_spec
from phalanx.api.schema.exports import NONE
from phalanx.api.schema.jobspec import JobSpec
from phalanx.api.schema.queues import QuotaSpec, to_quota_spec
from phalanx.api.schema.workflows import SubmittedWorkflow
from phalanx.cli.drafts import TRIES, Drafts, read_files
from phalanx.cli.environment import exported_variables, warn_of_virtualenv
from phalanx.cli.labels import label
from phalanx.cli.output import OutputOption, Table, emit, note, tell_error
from phalanx.cli.session import TimeoutOption, deadline, session
from phalanx.cli.wait import await_submitted, exit_code, tell_end
from phalanx.cli.workflows import await_workflow, exit_of, hand_in, tell_ends
from phalanx.errors import BadRequest, Conflict, PhalanxError
from phalanx.preview.refusals import located, refusals_at
from phalanx.settings import Output

if TYPE_CHECKING:
    from phalanx.client.client import Client
    from phalanx.manifests.found import ParsedJob
    from phalanx.manifests.read import Manifests

T = TypeVar("T")
STDIN = Path("-")


JobsExportOption = Annotated[
    str | None,
    typer.Option(
        "--export",
        metavar="ALL|NONE|A,B",
        help="Which variables of this shell the jobs and stages get besides what the files say.",
        show_default="NONE",
    ),
]


def apply(
    ctx: typer.Context,
    file: Annotated[
        list[Path],
        typer.Option("-f", "--file", help="Job file or manifests; - is standard input; repeatable."),
    ],
    strict: Annotated[bool, typer.Option("--strict", help="Treat unsupported fields as errors.")] = False,
    allow_infeasible: Annotated[
        bool,
        typer.Option("--allow-infeasible", help="Queue jobs even if no node could ever run them."),
    ] = False,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait until all jobs end; exit with the code of the first that failed."),
    ] = False,
    export: JobsExportOption = None,
    timeout: TimeoutOption = None,
    output: OutputOption = None,
) -> int:
    """Submit the jobs described in files: all of them, or none.

    Accepts Phalanx job files and unmodified manifests: Pod, PodGroup, Job, JobSet, ClusterNetworkTopology,
    PriorityClass of Kubernetes, those of AIchor, and workflows of FlowMesh. Unsupported fields are reported on
    standard error. Commands run in the current folder unless the file names another.
    """
    here = session(ctx)
    chosen, until = here.output(output), deadline(timeout)
    texts = read_or_exit(lambda: texts_of(file))
    alone = read_or_exit(lambda: read_files(texts, [], strict=strict))
    client = here.client()
    drafts = Drafts(client, lambda kept: read_files(texts, kept, strict=strict), strict=strict)
    made = read_or_exit(lambda: drafts.read(alone))
    drafts.exported = _exported(export, made)
    for caution in made.warnings:
        note(f"warning: {caution}")
    replies, flows = list[ApplyReply](), list[SubmittedWorkflow]()
    try:
        for each in _handed_in(client, drafts, made, strict, allow_infeasible):
            replies.append(each)
            for warning in each.warnings:
                note(f"warning: {warning}")
        flows.extend(hand_in(client, each, allow_infeasible, drafts.exported) for each in made.workflows)
    except (PhalanxError, KeyboardInterrupt):
        if replies or flows:  # it stays
            _show(_together(replies, flows), chosen)
            note("the listed jobs were accepted, the others were not: apply the others again")
        raise
    reply = _together(replies, flows)
    if not wait or chosen not in {"json", "yaml"}:
        _show(reply, chosen)
    if not wait:
        return 0
    sys.stdout.flush()
    views = await_submitted(client, reply.jobs, until)
    if views:
        tell_end(views, chosen)
    ends = [await_workflow(client, flow.id, until) for flow in flows]
    if ends:
        tell_ends(ends, chosen)
    return exit_code(views) or exit_of(ends)


def _exported(export: str | None, made: Manifests) -> dict[str, str]:
    """What of this shell's environment the jobs get: a file is explicit, so nothing unless it is asked for."""
    if export is None:
        stages = [stage.job for flow in made.workflows for stage in flow.spec.stages]
        warn_of_virtualenv([*(found.spec for found in made.found), *stages])
    return exported_variables(export, default=NONE)


def texts_of(files: Sequence[Path]) -> list[tuple[str, str]]:
    """Each file's name and what it holds; `-` is standard input, once."""
    if list(files).count(STDIN) > 1:
        raise typer.BadParameter(
            "- is given twice, but standard input can be read only once", param_hint="-f"
        )
    return [("standard input" if file == STDIN else str(file), _text(file)) for file in files]


def _text(file: Path) -> str:
    try:
        raw = _bytes(sys.stdin.buffer, "standard input") if file == STDIN else _bytes_of(file)
    except OSError as error:
        told = (
            "it is a folder; name the files in it"
            if file.is_dir()
            else (error.strerror or str(error)).lower()
        )
        raise BadRequest(f"{file}: {told}") from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadRequest(f"{file}: it is not UTF-8: {error.reason} at byte {error.start}") from None


def _bytes_of(file: Path) -> bytes:
    with file.open("rb") as stream:
        return _bytes(stream, str(file))


def _bytes(stream: BinaryIO, name: str) -> bytes:
    """All of it, if it is not too much: a device or a pipe may never end."""
    from phalanx.manifests.load import BYTES_MAX

    raw = b""
    size = _size(stream)
    if size <= BYTES_MAX:
        raw = stream.read(BYTES_MAX + 1)
        size = max(size, len(raw))
    if size > BYTES_MAX:
        least = "" if size > BYTES_MAX + 1 else "or more "
        raise BadRequest(f"{name}: {size} bytes {least}are too many; the limit is {BYTES_MAX}")
    return raw


def _size(stream: BinaryIO) -> int:
    """The size of a regular file; 0 of what does not tell."""
    with suppress(OSError, ValueError):
        return os.fstat(stream.fileno()).st_size
    return 0


def read_or_exit(reader: Callable[[], T]) -> T:
    """What is read from files; errors in them become ours."""
    try:
        return reader()
    except BadRequest as error:
        for each in (error, *getattr(error, "others", ())):
            tell_error(each.detail, each.hint)
        raise typer.Exit(error.exit_code) from None


def _handed_in(
    client: Client,
    drafts: Drafts,
    made: Manifests,
    strict: bool,
    allow_infeasible: bool,
    tries: int = TRIES,
) -> Iterator[ApplyReply]:
    """All that is new at once, then members of gangs that wait for them, one gang after the other."""
    amended = [found for found in made.found if drafts.of(found)]
    new = [found for found in made.found if not drafts.of(found)]
    request = ApplyRequest(
        specs=[_in_this_folder(drafts.spec(found)) for found in new],
        topology=None if made.topology is None else to_spec(made.topology),
        quotas=_quotas(made),
        allow_infeasible=allow_infeasible,
        strict=strict,
        exported=drafts.exported,
    )
    is_empty = not (request.specs or request.topology or request.quotas)
    if not (is_empty and (amended or made.workflows)):
        try:
            with refusals_at(new):
                reply = client.apply(request)
        except Conflict as error:
            if error.reason != "Amended" or not tries:
                raise
            again = drafts.read_again()  # another user has begun one of these gangs meanwhile
            yield from _handed_in(client, drafts, again, strict, allow_infeasible, tries - 1)
            return
        reply.warnings = [located(warning, new) for warning in reply.warnings]
        yield _told(reply, [found for found, job in zip(new, reply.jobs, strict=True) if not job.unchanged])
    for found in amended:
        with refusals_at([found]):
            reply = drafts.amend(found, allow_infeasible=allow_infeasible)
        yield _told(reply, [found])


def _told(reply: ApplyReply, waiting: Sequence[ParsedJob]) -> ApplyReply:
    """The reply, after it was told what is as it was, and what the gangs that wait for members lack."""
    for job in reply.jobs:
        if job.unchanged:
            note(f"unchanged: {job.name} was applied before, it is job {label(job)}")
    for found in waiting:
        if found.spec.draft is not None:
            note(f"waits for members: {found.spec.draft.lacks}")
        elif _start_alone(found.spec):
            called = found.spec.name or "the job"
            tasks = sum(group.tasks * group.replicas for group in found.spec.groups)
            note(f"{called}: its {tasks} tasks start one by one; with `gang: true` they start together")
    return reply


def _start_alone(spec: JobSpec) -> bool:
    """Whether it is a job file whose `tasks` are not what `--tasks` is on the command line: a gang."""
    return not (spec.gang or spec.object) and any(group.tasks > 1 for group in spec.groups)


def _together(replies: Sequence[ApplyReply], flows: list[SubmittedWorkflow]) -> ApplyReply:
    jobs = [job for reply in replies for job in reply.jobs]
    warnings = [warning for reply in replies for warning in reply.warnings]
    first = replies[0] if replies else ApplyReply([])
    return structs.replace(first, jobs=jobs, warnings=warnings, workflows=flows)


def _in_this_folder(spec: JobSpec) -> JobSpec:
    """What says nothing of its folder runs in the one where it is applied, as `submit` has it."""
    here = str(Path.cwd())
    groups = [
        structs.replace(group, cwd=here) if group.cwd is None and not group.image else group
        for group in spec.groups
    ]
    return structs.replace(spec, groups=groups)


def _quotas(made: Manifests) -> dict[str, QuotaSpec]:
    return {queue: to_quota_spec(quota) for queue, quota in made.queues.items()}


def _show(reply: ApplyReply, output: Output) -> None:
    if reply.topology_changed:
        note("the topology's layers were changed")
    for queue in reply.quotas:
        note(f"queue {queue}: quota changed")
    ids = [*map(label, reply.jobs), *map(label, reply.workflows)]
    is_bare = not reply.jobs  # only workflows: their ids, as `workflow submit` prints them
    emit(reply, output, ids, lambda wide: _table(reply, wide) if wide or not is_bare else ids)


def _table(reply: ApplyReply, wide: bool) -> Table:
    table = Table("ID", "NAME", "TASKS", *(("LONG ID",) if wide else ()), narrows={"NAME": 12})
    for job in reply.jobs:
        table.add(label(job), job.name, job.tasks, *((job.id,) if wide else ()))
    for flow in reply.workflows:
        table.add(label(flow), flow.name, len(flow.jobs), *((flow.id,) if wide else ()))
    return table
