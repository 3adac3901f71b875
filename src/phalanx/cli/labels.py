"""What a table or a line calls a job, a task or a workflow: its number. JSON and `-o wide` have the long id, too."""

from __future__ import annotations

from typing import Protocol


class Numbered(Protocol):
    """Most answers about jobs and tasks."""

    @property
    def id(self) -> str: ...

    @property
    def number(self) -> int | str: ...


def label(view: Numbered) -> str:
    """Its number, such as 17 or 17.3; the id where an older coordinator gives none."""
    return str(view.number or view.id)
