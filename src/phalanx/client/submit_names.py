"""The keywords of `submit` and `gang`: the fields of a submission, and those that the command line names otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from phalanx.api.schema.groupspec import parse_gather_rules
from phalanx.api.schema.submission import SubmitReply
from phalanx.api.schema.submit_fields import GangFields, SweepFields
from phalanx.client.keywords import check_keywords

# As the command line has it: the field that is meant.
NAMES = {"retries": "max_retries", "target": "targets", "mount": "mounts", "label": "labels", "tag": "tags"}


class GangKeywords(GangFields, total=False):
    """Keywords of `gang`: `GangFields`, and names that the command line has for some of them."""

    retries: int | None
    mount: str | list[str]
    label: dict[str, str]
    tag: dict[str, str]


class SubmitKeywords(SweepFields, total=False):
    """Keywords of `submit`: `SweepFields`, and names that the command line has for some of them."""

    retries: int | None
    target: str | list[str]
    mount: str | list[str]
    label: dict[str, str]
    tag: dict[str, str]


def read_keywords(given: Mapping[str, Any], function: str = "submit") -> SweepFields:
    """The fields that are meant; TypeError for one that is given twice or does not exist."""
    known = [*SweepFields.__annotations__, *NAMES]
    check_keywords(function, given, known, listed_by="help(phalanx.Client.submit) lists them")
    fields: dict[str, Any] = {}
    for name, value in given.items():
        field = NAMES.get(name, name)
        if field in fields or (field != name and field in given):
            raise TypeError(f"{name} and {field} are the same: give one of them")
        fields[field] = _VALUES[field](value) if field in _VALUES else value
    return cast(SweepFields, fields)


def _jobs_before(given: Any) -> list[Any]:
    """Jobs that come first, by their ids: they may be given as handles or numbers, and one alone without a list."""
    listed = [given] if isinstance(given, str | int | SubmitReply) else given
    return [
        id for each in listed for id in (each.task_ids if isinstance(each, SubmitReply) else [_text(each)])
    ]


def _text(given: Any) -> Any:
    """A number as text, such as that of a job; the coordinator says what is wrong with anything else."""
    return str(given) if type(given) is int else given


def _as_list(given: Any) -> Any:
    return [given] if isinstance(given, str) else given


# Fields that may be written in a shorter form, and how it is read.
_VALUES: dict[str, Callable[[Any], Any]] = {
    "targets": _as_list,
    "mounts": _as_list,
    "nodes": _as_list,
    "exclude": _as_list,
    "after": _jobs_before,
    "gather": parse_gather_rules,
    "name": _text,
}
