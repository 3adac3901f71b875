"""`phalanx files` and `phalanx cp`: the artifacts of tasks, listed and copied to this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phalanx.cli.completion import job_ids
from phalanx.cli.job import IdArgument, id_of
from phalanx.cli.labels import label
from phalanx.cli.output import OutputOption, Table, clean, emit, note
from phalanx.cli.pages import collected
from phalanx.cli.session import session
from phalanx.core.model.amounts import describe_bytes
from phalanx.core.model.files import why_bad_path
from phalanx.errors import BadRequest, NotFound, PhalanxError

if TYPE_CHECKING:
    from phalanx.api.schema.files import FilesView
    from phalanx.client.client import Client

AttemptOption = Annotated[int | None, typer.Option(min=1, help="Attempt number; by default the newest.")]
STDOUT = "-"


def files(
    ctx: typer.Context,
    id: IdArgument,
    attempt: AttemptOption = None,
    limit: Annotated[int, typer.Option(min=1, help="Maximum number of tasks.")] = 1000,
    output: OutputOption = None,
) -> None:
    """List the artifacts of a job: what its tasks left in the folder named in PHALANX_ARTIFACTS."""
    here = session(ctx)
    client = here.client()
    found, more = _of_tasks(client, id_of(client, id), attempt, limit)
    names = [f"{label(view)}:{each.path}" for view in found for each in view.files]
    emit(found, here.output(output), names, lambda _wide: _table(found))
    if not names and here.output(output) == "table":
        note("no artifacts: the tasks left nothing in the folder named in PHALANX_ARTIFACTS")
    for view in found:
        if view.left_out_count:
            some = "; ".join(map(clean, view.left_out[:3]))
            note(f"{label(view)}: {view.left_out_count} not kept: {some}")
    if more:
        note(f"showing {limit} tasks; use --limit for more")


def cp(
    ctx: typer.Context,
    source: Annotated[str, typer.Argument(metavar="ID:PATH", autocompletion=job_ids)],
    target: Annotated[Path, typer.Argument(metavar="LOCAL")],
    recursive: Annotated[
        bool, typer.Option("-r", "--recursive", help="Copy a folder; ID: alone is all of it.")
    ] = False,
    attempt: AttemptOption = None,
) -> None:
    """Copy artifacts of a task to this machine, verified by their digests.

    With -r, those of all tasks of a job go to a folder for each.
    """
    client = session(ctx).client()
    name, colon, path = source.partition(":")
    if not colon or (not path and not recursive):
        raise BadRequest(f"{source[:80]!r}: expected ID:PATH, such as 17.3:model.pt, or -r and ID:")
    if path.rstrip("/") and (wrong := why_bad_path(path.rstrip("/"))):
        raise BadRequest(wrong)
    id = id_of(client, name)
    try:
        if not recursive:
            path = path.rstrip("/") or path
            _copy(client, id, path, target / Path(path).name if target.is_dir() else target, attempt)
            return
        found, _ = _of_tasks(client, id, attempt, sys.maxsize)
    except NotFound as error:
        if error.reason in {"JobNotFound", "IsWorkflow"}:
            error.hint = _stage_hint(client, id, path) or error.hint
        raise
    copied = sum(_copy_folder(client, view, path.rstrip("/"), target, len(found) > 1) for view in found)
    if not copied:
        raise NotFound(f"there is no artifact in {source!r}", reason="FileNotFound")
    note(f"{copied} files")


def _stage_hint(client: Client, workflow: str, path: str) -> str:
    """What to write instead of WORKFLOW:STAGE:PATH; empty if that was not written."""
    name, _, rest = path.partition(":")
    with suppress(PhalanxError):  # the error of the command is the one to show
        for stage in client.workflow_view(workflow).stages:
            if stage.name == name:
                return f"{stage.number or stage.job_id}:{rest} names it by the job of stage {name}"
    return ""


def _of_tasks(client: Client, id: str, attempt: int | None, limit: int) -> tuple[list[FilesView], bool]:
    if "." in id:
        return [client.files(id, attempt=attempt)], False
    tasks, more = collected(partial(client.tasks, id), limit)
    return [client.files(task.id, attempt=attempt) for task in tasks if task.attempt], more


def _copy_folder(client: Client, view: FilesView, folder: str, target: Path, is_one_of_many: bool) -> int:
    """Copy what is below a folder of one task."""
    copied = 0
    for each in view.files:
        if wrong := why_bad_path(each.path):  # the coordinator has checked it, and so do we
            raise BadRequest(f"{label(view)}: {wrong}")
        if folder and not each.path.startswith(f"{folder}/"):
            continue
        inside = each.path.removeprefix(f"{folder}/") if folder else each.path
        place = target / label(view) / inside if is_one_of_many else target / inside
        place.parent.mkdir(parents=True, exist_ok=True)
        _copy(client, view.id, each.path, place, view.attempt)
        copied += 1
    return copied


def _copy(client: Client, id: str, path: str, target: Path, attempt: int | None) -> None:
    pieces = client.file(id, path, attempt=attempt)
    if str(target) == STDOUT:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
        return
    try:
        _write(pieces, target)
    except OSError as error:
        raise BadRequest(f"{target} cannot be written: {error.strerror}") from None


def _write(pieces: Iterator[bytes], target: Path) -> None:
    """Write beside the target first: what does not arrive whole, or is damaged, is not there.

    A device or a pipe, such as /dev/null, is written to: a file must not take its place.
    """
    if target.exists() and not target.is_file():
        with target.open("wb") as out:
            out.writelines(pieces)
        return
    target = target.resolve()  # /dev/stdout is a link
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with draft.open("xb") as out:
            for piece in pieces:
                out.write(piece)
        draft.replace(target)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _table(found: list[FilesView]) -> Table:
    table = Table("TASK", "ATTEMPT", "SIZE", "PATH", narrows={"PATH": 20})
    for view in found:
        for each in view.files:
            table.add(label(view), view.attempt, describe_bytes(each.size), clean(each.path))
    return table
