"""The fields of `SubmitRequest` as keywords, for clients that are written in Python.

Some may be written in a shorter form than in the request; `client/submit_names.py` reads those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from os import PathLike
from typing import Any, Literal, TypedDict

from phalanx.api.schema.groupspec import GatherRules, Network
from phalanx.api.schema.submission import SubmitReply
from phalanx.core.model.resources import Cores

# Jobs by their ids or numbers, or as what `submit` returned.
JobBefore = str | int | SubmitReply
JobsBefore = JobBefore | Sequence[JobBefore]
Word = str | int | float | PathLike[str]
Several = str | Sequence[str]
Span = float | str | timedelta


class GangFields(TypedDict, total=False):
    """The fields of `SubmitRequest` that tasks which start together have in common with all others."""

    cores: Cores
    memory: int | str
    gpus: int
    gpu_type: str | None
    gpu_memory: int | str
    priority: int
    queue: str
    name: str
    env: Mapping[str, Word]
    export: str | Sequence[str] | None  # variables of this process: ALL, NONE, or names
    exported: dict[str, str]
    cwd: str | PathLike[str] | None
    time_limit: Span | None
    grace: Span | None
    max_retries: int | None
    max_attempts: int | None
    allow_infeasible: bool
    request_id: str | None
    min: int
    gang_wait: Span | None
    labels: dict[str, str]
    require_isolation: bool
    nodes: Several
    exclude: Several
    exclusive: bool
    spread: bool
    tags: dict[str, str]
    after: JobsBefore
    preemption: Literal["lower", "never"]
    evictable: bool
    min_run: Span
    network: Network
    subdomain: str
    image: str
    mounts: Several
    begin: float | str | datetime | None
    split_output: bool
    attached: bool
    stdin: bool


class SubmitFields(GangFields, total=False):
    """All fields of `SubmitRequest`, for `submit(command=[…], gpus=2)`."""

    command: Sequence[Word]
    shell: str | None
    kind: Literal["command", "vps"]
    targets: Several
    required_gpus: list[list[int]] | None
    array: str | range | None
    no_queue: bool
    hold: bool
    tasks: int
    gather: GatherRules
    ip_token: str | None
    names: bool
    params: dict[str, Any]
    each: list[Any]
    at_once: int


class SweepFields(SubmitFields, total=False):
    """The same, and rows of any number: they are sent in pieces before the job. One of these is given."""

    rows: Iterable[Any]  # objects with the same keys, or single values
    each_line: str | PathLike[str]  # a file: one task for each line
    from_csv: str | PathLike[str]
    from_json: str | PathLike[str]
