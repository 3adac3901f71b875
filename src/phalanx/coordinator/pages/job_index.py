"""Columns over all jobs, so that a page may filter, search and sort a hundred thousand of them in milliseconds.

A column has one place for each job, in memory or in the history; what a row shows besides is read when it is shown.
What has changed is looked at again before the next question, in pieces.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from phalanx.api.schema.pages import JobRowsQuery
from phalanx.api.server.limits import TimeSlices
from phalanx.coordinator.waiting_jobs import waiting_tasks
from phalanx.core.cluster.jobs import JobState
from phalanx.core.model.orders import Status
from phalanx.errors import BadRequest

Places = NDArray[np.int64]
FIRST_SIZE = 1024
TEXT_MAX = 300  # characters of a command that are searched
WORDS_MAX = 10  # of a search
SEARCHED_AT_ONCE = 2000  # jobs, a millisecond or so
_NUMBERS = {
    "number": np.int64, "status": np.int64, "priority": np.int64, "tasks": np.int64, "gpus": np.int64,
    "waiting": np.int64,  # tasks
    "submitted": np.float64, "started": np.float64, "ended": np.float64,
    "name": np.int64, "user": np.int64, "queue": np.int64,
}  # fmt: skip
_WORDS = ("name", "user", "queue")
_BY_STATUS = {status.word.lower(): int(status) for status in Status}


class Words:
    """Numbers for words; equal words have one number."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self._ranks: Places | None = None

    def number(self, word: str) -> int:
        found = self.numbers.setdefault(word, len(self.numbers))
        if self._ranks is not None and found >= len(self._ranks):
            self._ranks = None
        return found

    def ranks(self) -> Places:
        """By its number, where each word stands in the alphabet."""
        if self._ranks is None:
            ordered = sorted(self.numbers, key=str.casefold)
            ranks = np.empty(len(ordered), dtype=np.int64)
            ranks[[self.numbers[word] for word in ordered]] = np.arange(len(ordered))
            self._ranks = ranks
        return self._ranks


class JobIndex:
    """All jobs, by column."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.places: dict[str, int] = {}
        self.text: list[str] = []  # what is searched
        self.columns: dict[str, NDArray[Any]] = {
            name: np.zeros(FIRST_SIZE, dtype) for name, dtype in _NUMBERS.items()
        }
        self.words = {name: Words() for name in _WORDS}
        self.version = 0  # of the columns

    def __len__(self) -> int:
        return len(self.ids)

    def put(self, job: JobState, command: str) -> None:
        """Add a job, or note what it is now. `command` is what everybody may read of it."""
        spec = job.job
        place = self.places.get(spec.id)
        if place is None:
            place = self._add(spec.id)
            words = (str(job.arrival), spec.id, spec.name or "", spec.user, spec.queue, command[:TEXT_MAX])
            self.text[place] = "\n".join(words).casefold()
        columns = self.columns
        columns["number"][place] = job.arrival
        columns["status"][place] = int(job.overall_status)
        columns["priority"][place] = spec.priority
        columns["tasks"][place] = spec.tasks
        columns["gpus"][place] = max(group.request.gpus for group in spec.groups)
        columns["waiting"][place] = waiting_tasks(job)
        columns["submitted"][place] = spec.submitted_at
        columns["started"][place] = job.first_started_at or 0.0
        columns["ended"][place] = job.ended_at or 0.0
        for name, word in (("name", spec.name or ""), ("user", spec.user), ("queue", spec.queue)):
            columns[name][place] = self.words[name].number(word)
        self.version += 1

    def remove(self, id: str) -> None:
        """Forget a job. The last one takes its place."""
        place = self.places.pop(id, None)
        if place is None:
            return
        last = len(self.ids) - 1
        for column in self.columns.values():
            column[place] = column[last]
        self.ids[place], self.text[place] = self.ids[last], self.text[last]
        self.ids.pop()
        self.text.pop()
        if place != last:
            self.places[self.ids[place]] = place
        self.version += 1

    async def find(self, query: JobRowsQuery, user: str, slices: TimeSlices) -> Places:
        """The places of the jobs that a query asks for, in its order. Nothing may be removed meanwhile."""
        size = len(self.ids)
        chosen = np.ones(size, dtype=np.bool_)
        if query.status:
            chosen &= np.isin(self.columns["status"][:size], _statuses(query.status))
        if query.waiting:
            chosen &= self.columns["waiting"][:size] > 0
        wanted = user if query.mine else query.user
        for name, word in (("queue", query.queue), ("user", wanted)):
            if word is not None:
                chosen &= self.columns[name][:size] == self.words[name].numbers.get(word, -1)
        if query.since is not None:
            chosen &= self.columns["submitted"][:size] >= query.since
        places = np.flatnonzero(chosen)
        if query.search:
            places = await self._containing(places, query.search, slices)
        return self._ordered(places, query.sort)

    async def _containing(self, places: Places, search: str, slices: TimeSlices) -> Places:
        """Where every word of a search occurs."""
        words = sorted(set(search.casefold().split()), key=len, reverse=True)
        if len(words) > WORDS_MAX:
            raise BadRequest(f"search has {len(words)} words, expected at most {WORDS_MAX}")
        text, found = self.text, list[int]()
        piece = await slices.turn()
        for at in range(0, len(places), SEARCHED_AT_ONCE):
            if piece.is_over:
                piece = await slices.turn()
            some: list[int] = places[at : at + SEARCHED_AT_ONCE].tolist()
            for word in words:
                some = [place for place in some if word in text[place]]
            found += some
        return np.array(found, dtype=np.int64)

    def _ordered(self, places: Places, sort: str) -> Places:
        """By the column, the newest first among equals."""
        name = sort.removeprefix("-")
        numbers = self.columns["number"][places]
        if name == "number":
            return places[np.argsort(-numbers if sort.startswith("-") else numbers, kind="stable")]
        column = self.columns[name][places]
        if name in _WORDS and len(column):
            column = self.words[name].ranks()[column]
        return places[np.lexsort((-numbers, -column if sort.startswith("-") else column))]

    def _add(self, id: str) -> int:
        place = self.places[id] = len(self.ids)
        self.ids.append(id)
        self.text.append("")
        if place >= len(self.columns["number"]):
            self.columns = {name: np.resize(column, 2 * place) for name, column in self.columns.items()}
        return place


def _statuses(text: str) -> list[int]:
    found = []
    for word in text.split(","):
        if word.strip().lower() not in _BY_STATUS:
            known = ", ".join(status.word for status in Status)
            raise BadRequest(f"status = {word.strip()[:40]!r}: expected some of {known}, with commas between")
        found.append(_BY_STATUS[word.strip().lower()])
    return found


def key_of(query: JobRowsQuery, user: str) -> tuple[JobRowsQuery, str]:
    """What is the same of all questions for rows of one list."""
    return structs.replace(query, offset=0, limit=1), user if query.mine else ""
