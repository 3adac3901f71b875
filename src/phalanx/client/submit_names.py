"""The keywords of `submit` and `gang`: the fields of a submission, and those that the command line names otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, cast

from phalanx.api.schema.submit_fields import GangFields, SweepFields

# As the command line has it: the field that is meant.
NAMES = {"retries": "max_retries", "target": "targets", "mount": "mounts", "label": "labels", "tag": "tags"}
_LISTS = ("targets", "mounts")


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


def read_keywords(given: Mapping[str, Any]) -> SweepFields:
    """The fields that are meant; TypeError for one that is given twice or does not exist."""
    fields: dict[str, Any] = {}
    for name, value in given.items():
        field = NAMES.get(name, name)
        if field in fields or (field != name and field in given):
            raise TypeError(f"{name} and {field} are the same: give one of them")
        if field not in SweepFields.__annotations__:
            raise TypeError(f"submit() has no argument {name!r}{_meant(name)}")
        fields[field] = [value] if field in _LISTS and isinstance(value, str) else value
    return cast(SweepFields, fields)


def _meant(name: str) -> str:
    known = [*SweepFields.__annotations__, *NAMES]
    close = get_close_matches(name, known, 1)
    return f"; did you mean {close[0]!r}?" if close else "; help(phalanx.Client.submit) lists them"
