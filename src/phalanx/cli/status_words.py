"""The status of jobs and tasks as lists show it, finer than the API's, and asking for one of these words.

The coordinator selects by its own six words; what is finer is selected here, of what it lists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import get_args

from phalanx.api.schema.jobs import JobView, StatusWord, TaskView
from phalanx.cli.members import standing

LIVE: tuple[StatusWord, ...] = ("Running", "Assigned", "Pending")
_PLACED: tuple[StatusWord, ...] = ("Running", "Assigned")
# Each finer word: the words of the API that such jobs or tasks can have, and whether a job is so.
_FINER: Mapping[str, tuple[tuple[StatusWord, ...], Callable[[JobView], object]]] = {
    "Held": (LIVE, lambda job: job.held),
    "Unapproved": (("Pending",), lambda job: job.unapproved),
    "Paused": (("Running",), lambda job: job.paused),
    "Unread": (("Running",), lambda job: job.unread),
    "Unreachable": (("Running",), lambda job: job.unreachable),
    "Preparing": (_PLACED, lambda _: False),
    "Ready": (_PLACED, lambda _: False),
    "Finished": (("Running",), lambda job: job.finished),
}
# Typer takes several choices only from an Enum.
ShownStatus = Enum("ShownStatus", [(word, word) for word in (*get_args(StatusWord), *_FINER)])  # type: ignore[misc]


def statuses_of(words: Sequence[str]) -> list[StatusWord]:
    """The words of the API that cover these."""
    found: dict[StatusWord, None] = {}
    for word in words:
        if word in _FINER:
            found |= dict.fromkeys(_FINER[word][0])
        else:
            found[word] = None  # type: ignore[index]  # it is one of them
    return [*found]


def is_finer(words: Sequence[str]) -> bool:
    """Whether the API's words do not suffice."""
    return any(word in _FINER for word in words)


def fits(item: JobView | TaskView, words: Sequence[str]) -> bool:
    """Whether a job or a task has one of these; of a job it is enough that a part of it has."""
    if item.status in words:
        return True
    if isinstance(item, TaskView):
        return standing(item) in words
    return any(word in words and is_so(item) for word, (_, is_so) in _FINER.items())
