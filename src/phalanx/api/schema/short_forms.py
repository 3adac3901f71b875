"""Shorter forms in which people write fields of jobs, read into those of `JobSpec` and `GroupSpec`.

Only what can mean one thing is taken: a name or a job that is written as a number, one value where a list is expected,
a rule of a gang as the command line writes it. Everything else is left as it is, for the struct to refuse.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from phalanx.api.schema.fields import shown
from phalanx.api.schema.groupspec import GroupSpec, parse_gather
from phalanx.api.schema.jobspec import JobSpec
from phalanx.api.schema.nearest import nearest
from phalanx.core.model.amounts import parse_cores
from phalanx.errors import BadRequest

_TEXTS = ("env", "labels", "tags")  # of text by text
ONLY_OF_GROUPS = frozenset(GroupSpec.__struct_fields__) - {
    "name",
    "after",
    "network",
}  # beside a job those are its own
_KNOWN = frozenset(JobSpec.__struct_fields__) | ONLY_OF_GROUPS | {"retries"}
_LISTS = ("nodes", "exclude", "mounts")


def ease_job(job: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a job; those of its groups are left alone. BadRequest for a rule that cannot be read."""
    eased = dict(job)
    if type(eased.get("name")) is int:
        eased["name"] = str(eased["name"])
    if "retries" in eased and "max_retries" not in eased:  # as the command line and Python call it
        eased["max_retries"] = eased.pop("retries")
    if "after" in eased:
        eased["after"] = [_text(each) for each in _listed(eased["after"])]
    if "gather" in eased:
        eased["gather"] = [_rule(each) for each in _listed(eased["gather"])]
    return eased


def ease_group(group: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a group."""
    eased = {key: value for key, value in group.items() if value is not None}
    for key in _TEXTS:
        if isinstance(eased.get(key), dict):
            eased[key] = {k: _text(v) for k, v in eased[key].items()}
    for key in _LISTS:
        if isinstance(eased.get(key), str):
            eased[key] = [eased[key]]
    if isinstance(eased.get("cores"), str):  # 500m; what is not a number of cores is refused as text
        with suppress(ValueError):
            eased["cores"] = parse_cores(eased["cores"])
    return eased


def grouped(job: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The content of a job file as a `JobSpec` has it; fields of a single group may be beside those of the job."""
    whole = dict(job)
    if "groups" not in whole:
        for name in whole:
            if name not in _KNOWN:
                near = nearest(name, _KNOWN)
                meant = f", did you mean {near!r}?" if near else ""
                raise BadRequest(f"{where}: unknown field {shown(name)}{meant}", reason="UnknownField")
        whole["groups"] = [{name: whole.pop(name) for name in list(whole) if name in ONLY_OF_GROUPS}]
    groups = whole["groups"] if isinstance(whole["groups"], list) else []
    if groups:
        whole["groups"] = [ease_group(each) if isinstance(each, Mapping) else each for each in groups]
    return ease_job(whole)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _text(value: Any) -> Any:
    return str(value) if type(value) is int else value


def _rule(value: Any) -> Any:
    return msgspec.to_builtins(parse_gather(value)) if isinstance(value, str) else value
