"""Where a submission, of a job or of a workflow, runs if it does not say: in the folder and environment of its user."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from phalanx.api.schema.exports import ALL, NONE, chosen
from phalanx.api.schema.groupspec import GroupSpec
from phalanx.api.schema.submission import SubmitRequest
from phalanx.api.schema.workflows import WorkflowRequest, WorkflowSpec
from phalanx.config import environment

Export = str | Sequence[str] | None


def with_surroundings(request: SubmitRequest, export: Export = None) -> SubmitRequest:
    """The request with the caller's folder, unless it names one, and the caller's environment, as far as `export` says:
    ALL, NONE or names. Without a word it is ALL, but NONE for an image or a VPS, which have their own.
    """
    has_own = bool(request.image) or request.kind == "vps"
    if request.cwd is None and not request.image:
        request = structs.replace(request, cwd=str(Path.cwd()))
    if export is None:
        export = NONE if has_own or request.exported else ALL
    found, _ = chosen(export, environment(), in_image=bool(request.image))
    return structs.replace(request, exported={**found, **request.exported}) if found else request


def workflow_with_surroundings(request: WorkflowRequest, export: Export = None) -> WorkflowRequest:
    """The same for a workflow and the commands of its stages. Programs of task types get neither."""
    if export is None:
        export = NONE if request.exported else ALL
    found, _ = chosen(export, environment())
    exported = {**found, **request.exported}
    return structs.replace(request, workflow=in_this_folder(request.workflow), exported=exported)


def in_this_folder(spec: WorkflowSpec) -> WorkflowSpec:
    """Commands that name no folder run in the one where they are submitted; programs of task types in the node's."""
    return in_folder(spec, str(Path.cwd()))


def in_folder(spec: WorkflowSpec, folder: str) -> WorkflowSpec:
    stages = []
    for stage in spec.stages:
        groups = [
            structs.replace(each, cwd=folder) if _needs_folder(each) else each for each in stage.job.groups
        ]
        stages.append(structs.replace(stage, job=structs.replace(stage.job, groups=groups)))
    return structs.replace(spec, stages=stages)


def _needs_folder(group: GroupSpec) -> bool:
    return group.cwd is None and not group.image and bool(group.command or group.shell)
