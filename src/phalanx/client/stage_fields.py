"""The keywords of `flow.stage`: the fields that a stage has in common with a job, and the job that they make."""

from __future__ import annotations

from datetime import datetime
from os import PathLike
from typing import Any, Literal, TypedDict

import msgspec

from phalanx.api.schema.fields import check_number
from phalanx.api.schema.groupspec import GatherRules, GroupSpec, Network
from phalanx.api.schema.jobspec import GangSpec, JobSpec
from phalanx.api.schema.submit_fields import Several, Span
from phalanx.client.keywords import check_keywords
from phalanx.client.plain_values import plain_value
from phalanx.core.model.job import RETRIES_MAX
from phalanx.core.model.resources import Cores


class StageFields(TypedDict, total=False):
    """The fields of a stage that a job has, too."""

    cores: Cores
    memory: int | str
    gpus: int
    gpu_type: str | None
    gpu_memory: int | str
    labels: dict[str, str]
    require_isolation: bool
    target: str | None
    nodes: Several
    exclude: Several
    exclusive: bool
    spread: bool
    image: str
    mounts: Several
    network: Network
    cwd: str | PathLike[str] | None
    tasks: int
    array: str | range | None
    gang: bool | GangSpec
    gather: GatherRules
    queue: str
    priority: int
    preemption: Literal["lower", "never"]
    evictable: bool
    min_run: Span
    begin: float | str | datetime | None
    max_retries: int
    retries: int  # the same as max_retries
    max_attempts: int  # runs in all: one more than max_retries
    time_limit: Span
    grace: Span
    tags: dict[str, str]
    split_output: bool


_HINTS = {
    "params": "a stage is not a sweep; what its program is to be told is its spec={…}",
    "name": "the name of a stage is the first argument",
    **dict.fromkeys(("depends_on", "needs"), "write after=[…] with the stages that come first"),
}
_ARGUMENTS = ("command", "shell", "after", "when", "task_type", "spec", "env")
_RETRIES = ("max_retries", "retries", "max_attempts")


def stage_job(given: StageFields, group: GroupSpec) -> JobSpec:
    """The job of a stage; `group` has its command and its variables. TypeError for a field that there is not."""
    check_keywords("stage", given, [*_ARGUMENTS, *StageFields.__annotations__], hints=_HINTS)
    fields: dict[str, Any] = {
        key: plain_value(key, value)
        for key, value in given.items()
        if key not in _RETRIES and value is not None
    }
    retries = _retries(given)
    if retries is not None:
        fields["max_retries"] = retries
    of_group = {key: fields.pop(key) for key in list(fields) if key not in JobSpec.__struct_fields__}
    return JobSpec([msgspec.structs.replace(group, **of_group)], **fields)


def _retries(given: StageFields) -> int | None:
    """Runs after the first."""
    found = [key for key in _RETRIES if key in given]
    if len(found) > 1:
        raise TypeError(f"{' and '.join(found)} are about the same: give one of them")
    attempts = given.get("max_attempts")
    if attempts is None:
        return given.get("max_retries", given.get("retries"))
    check_number("max_attempts", attempts, 1, RETRIES_MAX + 1)
    return attempts - 1
