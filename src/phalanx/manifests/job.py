"""The native job file: the keys of `JobSpec`, with the fields of a single group allowed at the top.

Every key is checked before anything is read, so that a misspelt one is an error that names its line and the likely
key. In a cluster file the same keys describe jobs that run or wait, and `places` says where.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import msgspec

from phalanx.api.schema.documents import complaint
from phalanx.api.schema.fields import shown
from phalanx.api.schema.groupspec import AfterSpec, GatherSpec, GroupSpec
from phalanx.api.schema.jobspec import (
    GangSpec,
    JobSpec,
    NetworkSpec,
    RestartSpec,
    RuleSpec,
    SuccessSpec,
    to_job,
)
from phalanx.core.model.amounts import parse_cores
from phalanx.core.model.job import Job
from phalanx.errors import PhalanxError
from phalanx.manifests.caution import ManifestError
from phalanx.manifests.containers import NOTHING_RUNS
from phalanx.manifests.lines import line_of
from phalanx.manifests.load import Map, place
from phalanx.manifests.view import View

JOB_FIELDS = frozenset(JobSpec.__struct_fields__)
GROUP_FIELDS = frozenset(GroupSpec.__struct_fields__)
INTERNAL = frozenset(
    {"applied", "attached", "draft", "indexes", "object", "objects", "stdin"}
)  # taken, and set by programs
OF_WORKFLOWS = ("stages", "graph", "dependsOn", "spec")
ONLY_GROUP_FIELDS = GROUP_FIELDS - {"name", "after", "network"}  # at the top these are the job's
PLACES = ("places", "started_at", "ending")
_FORMS: dict[str, type[msgspec.Struct]] = {
    "gang": GangSpec,
    "restart": RestartSpec,
    "success": SuccessSpec,
    "gather": GatherSpec,
    "after": AfterSpec,
    "network": NetworkSpec,
}


def read_native(document: View, *, placed: bool = False) -> JobSpec:
    """Read one job file; `placed` means that it is in a cluster file, where `places` is known and command is not."""
    content = document.content
    document.skip(*content)
    _check_keys(document, placed)
    plain: dict[str, Any] = {
        key: value for key, value in content.items() if value is not None and key not in PLACES
    }
    if "groups" in plain:
        if not isinstance(plain["groups"], list) or not all(
            isinstance(each, dict) for each in plain["groups"]
        ):
            raise document.error("groups", f"{shown(plain['groups'])} is not a list of groups")
        plain["groups"] = [{k: v for k, v in each.items() if k not in PLACES} for each in plain["groups"]]
    else:
        plain["groups"] = [{key: plain.pop(key) for key in list(plain) if key in ONLY_GROUP_FIELDS}]
    plain["groups"] = [_eased(each, placed or document.source.for_plan) for each in plain["groups"]]
    try:
        return msgspec.convert(plain, JobSpec)
    except msgspec.ValidationError as error:
        raise _error(document, *complaint(error, JobSpec, plain)) from None


def validate(spec: JobSpec, document: View | None, where: str, title: str) -> Job:
    """The job it would be, or an error that names the line if the field is in a file of ours."""
    try:
        return to_job(spec, id="0", now=0.0, user="", default_retries=3)
    except PhalanxError as error:
        field, _, what = error.detail.partition(": ")
        if document is not None:
            raise _error(document, field, what) from None
        message = ": ".join(filter(None, (title, error.detail)))
        raise ManifestError(where, message, reason=error.reason, hint=error.hint) from None


def _check_keys(document: View, placed: bool) -> None:
    content = document.content
    extra = set(PLACES) if placed else set()
    if "groups" not in document:
        extra |= ONLY_GROUP_FIELDS
    for key in content:
        if "groups" in document and key in ONLY_GROUP_FIELDS:
            raise document.error(key, "with groups it belongs in each of them, not beside them")
        if key in OF_WORKFLOWS:
            text = (
                "is of a workflow, not of a job: one begins with `kind: Workflow` and `spec: {stages: […]}`"
            )
            raise document.error(key, f"{text} (docs/guides/workflows.md)", reason="UnknownField")
    _known(content, JOB_FIELDS | extra, document, "")
    group_extra = GROUP_FIELDS | (set(PLACES) if placed else set())
    for path, form in _FORMS.items():
        _known(content.get(path), form.__struct_fields__, document, path)
    for number, group in enumerate(_listed(content.get("groups"))):
        _known(group, group_extra, document, f"groups[{number}]")
        if isinstance(group, dict):
            _known(group.get("after"), AfterSpec.__struct_fields__, document, f"groups[{number}].after")
    restart = content.get("restart")
    if isinstance(restart, dict):
        _known(restart.get("rules"), RuleSpec.__struct_fields__, document, "restart.rules")


def _known(found: Any, fields: Collection[str], document: View, path: str) -> None:
    """Refuse keys that are not among `fields`, in a mapping or in each mapping of a list."""
    if isinstance(found, list):
        for number, each in enumerate(found):
            _known(each, fields, document, f"{path}[{number}]")
    elif isinstance(found, Map):
        for key in found:
            if key not in fields:
                near = difflib.get_close_matches(key[:80], sorted({*fields} - INTERNAL), n=1)
                known = f" (known are: {', '.join(sorted({*fields} - INTERNAL))})"
                meant = f", did you mean {near[0]!r}?" if near else known
                line = found.lines.get(key, found.line or document.line)
                message = ": ".join(
                    filter(None, (document.source.title, path, f"unknown key {shown(key)}{meant}"))
                )
                raise ManifestError(place(document.source.file, line), message, reason="UnknownField")


def _eased(group: dict[str, Any], needs_no_command: bool) -> dict[str, Any]:
    """Text and numbers are taken for each other where that is clear; a job that is not run needs no command."""
    eased = {key: value for key, value in group.items() if value is not None}
    for key in ("env", "labels", "tags"):
        if isinstance(eased.get(key), dict):
            eased[key] = {k: str(v) if type(v) is int else v for k, v in eased[key].items()}
    if isinstance(eased.get("cores"), str):  # 500m; what is no number of cores is refused as text
        with suppress(ValueError):
            eased["cores"] = parse_cores(eased["cores"])
    if needs_no_command and "shell" not in eased:
        eased.setdefault("command", list(NOTHING_RUNS))
    return eased


def _listed(found: Any) -> list[Any]:
    return found if isinstance(found, list) else []


def _error(document: View, field: str, what: str) -> ManifestError:
    """An error about a field of the spec, where the file has it."""
    if field.startswith("groups[0].") and "groups" not in document:
        field = field.removeprefix("groups[0].")
    line = line_of(document.content, field) or document.line
    message = ": ".join(filter(None, (document.source.title, field, what)))
    return ManifestError(place(document.source.file, line), message, reason="InvalidField")
