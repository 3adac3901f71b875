"""Which jobs came of which request, so that a request that is sent again makes none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from phalanx.core.cluster.jobs import JobState
from phalanx.core.model.job import JobId


class RequestIds:
    """The jobs of earlier submissions, by user and by the request id that he gave, oldest first.

    An id counts for its user alone: what one user writes never answers or blocks another one. When more ids are known
    than may be, the user who gave the last one loses his oldest; if he holds no more than his share, whoever holds most
    does.
    """

    def __init__(self) -> None:
        self._of: dict[str, dict[str, list[JobId]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[str, str, list[JobId]]]:
        for user, known in self._of.items():
            for id, jobs in known.items():
                yield user, id, jobs

    def get(self, user: str, id: str) -> list[JobId]:
        """The jobs of this user's earlier submission with this id."""
        return self._of.get(user, {}).get(id, [])

    def add(self, user: str, id: str, job: JobId, most: int) -> None:
        """Note one more job of a submission; keep `most` ids at most."""
        known = self._of.setdefault(user, {})
        if id not in known:
            known[id] = []
            self._count += 1
        known[id].append(job)
        while self._count > most:
            self._forget_one(user)

    def restore(
        self,
        old: Iterable[tuple[str, list[JobId]]],
        jobs: Mapping[JobId, JobState],
        known: Iterable[tuple[str, str, list[JobId]]],
    ) -> None:
        """Take over what an image holds; an old one names no users, so ids count for those of the jobs in it."""
        for id, made in old:
            if made and (first := jobs.get(made[0])) is not None:
                self._of.setdefault(first.job.user, {})[id] = made
        for user, id, made in known:
            self._of.setdefault(user, {})[id] = made
        self._count = sum(map(len, self._of.values()))

    def _forget_one(self, user: str) -> None:
        if len(self._of[user]) <= self._count // len(self._of):
            user = max(self._of, key=lambda each: len(self._of[each]))
        known = self._of[user]
        del known[next(iter(known))]
        self._count -= 1
        if not known:
            del self._of[user]
