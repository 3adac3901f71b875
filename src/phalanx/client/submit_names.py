"""The keywords of `submit` and `gang`: the fields of a submission, and those that the command line names otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from phalanx.api.schema.submission import SubmitRequest
from phalanx.api.schema.submit_fields import GangFields, Several, SweepFields
from phalanx.client.keywords import check_keywords
from phalanx.client.plain_values import plain_value

# As the command line has it: the field that is meant.
NAMES = {"retries": "max_retries", "target": "targets", "mount": "mounts", "label": "labels", "tag": "tags"}

HINTS = {"limit": "at_once=4 runs 4 tasks of a sweep at a time; of an array, write array='1-100%4'"}


class GangKeywords(GangFields, total=False):
    """Keywords of `gang`: `GangFields`, and names that the command line has for some of them."""

    retries: int | None
    mount: Several
    label: dict[str, str]
    tag: dict[str, str]


class SubmitKeywords(SweepFields, total=False):
    """Keywords of `submit`: `SweepFields`, and names that the command line has for some of them."""

    retries: int | None
    target: Several
    mount: Several
    label: dict[str, str]
    tag: dict[str, str]


def read_command(request: object, more: tuple[object, ...], fields: dict[str, Any]) -> SubmitRequest | None:
    """The request that stands first, if one does. A list there is the command, and goes to the fields."""
    if callable(request):
        name = getattr(request, "__name__", str(request))
        raise TypeError(
            f"submit() runs commands; functions run in an Executor: phalanx.Executor(client).submit({name}, …)"
        )
    if isinstance(request, str) or more:
        raise TypeError(
            f"submit() takes a command as one list: submit([{request!r:.80}, …]), or shell='…' for a line of shell"
        )
    if isinstance(request, list | tuple):
        if "command" in fields:
            raise TypeError("submit() has two commands: give it first, or as command=[…]")
        fields["command"] = request
        return None
    if request is None or isinstance(request, SubmitRequest):
        return request
    raise TypeError(
        f"submit() takes a list, a SubmitRequest, or fields such as command=[…], not {request!r:.80}"
    )


def read_keywords(given: Mapping[str, Any], function: str = "submit") -> SweepFields:
    """The fields that are meant, without those that are None; TypeError for one that is given twice or unknown."""
    known = [*SweepFields.__annotations__, *NAMES]
    check_keywords(function, given, known, hints=HINTS, listed_by="help(phalanx.Client.submit) lists them")
    fields: dict[str, Any] = {}
    for name, value in given.items():
        field = NAMES.get(name, name)
        if field in fields or (field != name and field in given):
            raise TypeError(f"{name} and {field} are the same: give one of them")
        if value is not None:
            fields[field] = plain_value(field, value)
    return cast(SweepFields, fields)
