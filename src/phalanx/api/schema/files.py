"""Files of tasks as REST and the Python client show them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct


class FileView(Struct):
    """One artifact of a task."""

    path: str
    size: int
    sha256: str


class FilesView(Struct):
    """The artifacts of one attempt. `left_out` names some of those that were not kept, each with the reason."""

    id: str  # of the task
    attempt: int  # 0 before the first
    files: list[FileView]
    left_out: list[str] = []
    left_out_count: int = 0
    number: str = ""  # of the task, such as 17.3


class FilesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which attempt; by default the newest."""

    attempt: Annotated[int, Meta(ge=1, le=(1 << 53) - 1)] | None = None
