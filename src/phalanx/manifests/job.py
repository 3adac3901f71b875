"""The native job file: the keys of `JobSpec`, with the fields of a single group allowed at the top.

Every key is checked before anything is read, so that a misspelt one is an error that names its line and the likely
key. In a cluster file the same keys describe jobs that run or wait, and `places` says where.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import islice
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
from phalanx.api.schema.nearest import nearest
from phalanx.api.schema.short_forms import ONLY_OF_GROUPS, ease_group, ease_job
from phalanx.core.model.job import Job
from phalanx.errors import BadRequest, PhalanxError
from phalanx.manifests.caution import ManifestError, together
from phalanx.manifests.containers import NOTHING_RUNS
from phalanx.manifests.lines import line_of
from phalanx.manifests.load import Map, place
from phalanx.manifests.view import View

JOB_FIELDS = frozenset(JobSpec.__struct_fields__) | {"retries"}
GROUP_FIELDS = frozenset(GroupSpec.__struct_fields__)
INTERNAL = frozenset(
    {"applied", "attached", "draft", "indexes", "object", "objects", "stdin"}
)  # taken, and set by programs
OF_WORKFLOWS = ("stages", "graph", "dependsOn", "spec")
PLACES = ("places", "started_at", "ending")
ERRORS_MAX = 8  # of one document, told at once
_PLACE = re.compile(r"(?:groups\[(?P<group>[0-9]+)\]\.)?(?P<key>[a-z_]+)")
_HINTS = {"max_attempts": "write max_retries, one less: the runs after the first"}
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
        plain["groups"] = [{key: plain.pop(key) for key in list(plain) if key in ONLY_OF_GROUPS}]
    plain["groups"] = [_eased(each, placed or document.source.for_plan) for each in plain["groups"]]
    try:
        plain = ease_job(plain)
    except BadRequest as error:
        raise _error(document, "gather", error.detail) from None
    return _converted(plain, document)


def _converted(plain: dict[str, Any], document: View) -> JobSpec:
    """The spec, or every field that is of the wrong type in one error."""
    errors: list[ManifestError] = []
    spec: JobSpec | None = None
    while spec is None:
        try:
            spec = msgspec.convert(plain, JobSpec)
        except msgspec.ValidationError as error:
            field, what = complaint(error, JobSpec, plain)
            errors.append(_error(document, field, what))
            if len(errors) == ERRORS_MAX or not _is_left_out(plain, field):
                break
    if spec is None or errors:
        raise together(errors)
    return spec


def _is_left_out(plain: dict[str, Any], field: str) -> bool:
    """Take a field that was told away, to see what is wrong besides it; False if it is not there."""
    path = _PLACE.match(field)
    if path is None:
        return False
    holder = plain if path["group"] is None else plain["groups"][int(path["group"])]
    return holder.pop(path["key"], None) is not None


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
        extra |= ONLY_OF_GROUPS
    for key in content:
        if "groups" in document and key in ONLY_OF_GROUPS:
            raise document.error(key, "with groups it belongs in each of them, not beside them")
        if key in OF_WORKFLOWS:
            text = "is of a workflow, not of a job: one has `name` and `stages: [{name, command, needs}]`"
            raise document.error(key, f"{text} (docs/guides/workflows.md)", reason="UnknownField")
    if errors := list(islice(_unknown_keys(document, extra, placed), ERRORS_MAX)):
        raise together(errors)


def _unknown_keys(document: View, extra: set[str], placed: bool) -> Iterator[ManifestError]:
    content = document.content
    yield from _unknown(content, JOB_FIELDS | extra, document, "")
    group_extra = GROUP_FIELDS | (set(PLACES) if placed else set())
    for path, form in _FORMS.items():
        yield from _unknown(content.get(path), form.__struct_fields__, document, path)
    for number, group in enumerate(_listed(content.get("groups"))):
        yield from _unknown(group, group_extra, document, f"groups[{number}]")
        if isinstance(group, dict):
            path = f"groups[{number}].after"
            yield from _unknown(group.get("after"), AfterSpec.__struct_fields__, document, path)
    restart = content.get("restart")
    if isinstance(restart, dict):
        yield from _unknown(restart.get("rules"), RuleSpec.__struct_fields__, document, "restart.rules")


def _unknown(found: Any, fields: Collection[str], document: View, path: str) -> Iterator[ManifestError]:
    """Keys that are not among `fields`, in a mapping or in each mapping of a list."""
    if isinstance(found, list):
        for number, each in enumerate(found):
            yield from _unknown(each, fields, document, f"{path}[{number}]")
    elif isinstance(found, Map):
        for key in found:
            if key not in fields:
                text = f"unknown key {shown(key)}{_meant(key, {*fields} - INTERNAL)}"
                line = found.lines.get(key, found.line or document.line)
                message = ": ".join(filter(None, (document.source.title, path, text)))
                yield ManifestError(place(document.source.file, line), message, reason="UnknownField")


def _meant(key: str, fields: set[str]) -> str:
    if hint := _HINTS.get(key):
        return f": {hint}"
    near = nearest(key, fields)
    return f", did you mean {near!r}?" if near else f" (known are: {', '.join(sorted(fields))})"


def _eased(group: dict[str, Any], needs_no_command: bool) -> dict[str, Any]:
    """A group in the form of its struct; a job that is not run needs no command."""
    eased = ease_group(group)
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
