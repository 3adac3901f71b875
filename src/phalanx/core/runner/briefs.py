"""What a runner was told of the jobs it serves: briefs of their groups, and rolls of their formations.

Both are kept until the job is dismissed and nothing of it is held any more. A new session tells them anew.
"""

from __future__ import annotations

from phalanx.core.model.ids import JobId
from phalanx.core.model.orders import Brief, Roll

ROLLS_MAX = 16  # of one job: starts follow their roll closely, so older formations are over


class Briefing:
    """Briefs by job and number of the group, rolls by job and formation."""

    def __init__(self) -> None:
        self._briefs: dict[JobId, dict[int, Brief]] = {}
        self._rolls: dict[JobId, dict[int, Roll]] = {}
        self._dismissed: set[JobId] = set()  # jobs that are over, but of which something was still held

    @property
    def jobs(self) -> list[JobId]:
        """Every job of which something was told."""
        return [*self._briefs, *(job for job in self._rolls if job not in self._briefs)]

    def learn(self, told: Brief | Roll) -> None:
        self._dismissed.discard(told.job)
        if isinstance(told, Brief):
            self._briefs.setdefault(told.job, {})[told.group] = told
            return
        rolls = self._rolls.setdefault(told.job, {})
        rolls[told.formation] = told
        if len(rolls) > ROLLS_MAX:
            del rolls[min(rolls)]

    def brief(self, job: JobId, group: int) -> Brief | None:
        return self._briefs.get(job, {}).get(group)

    def any_brief(self, job: JobId) -> Brief | None:
        """One of the job's briefs: limits of time are the same in all of them."""
        return next(iter(self._briefs.get(job, {}).values()), None)

    def roll(self, job: JobId, formation: int) -> Roll | None:
        return self._rolls.get(job, {}).get(formation)

    def dismiss_later(self, job: JobId) -> None:
        self._dismissed.add(job)

    def is_dismissed(self, job: JobId) -> bool:
        return job in self._dismissed

    def forget(self, job: JobId) -> list[int]:
        """Drop all that was told of a job; the numbers of the groups whose briefs were known."""
        self._dismissed.discard(job)
        self._rolls.pop(job, None)
        return list(self._briefs.pop(job, {}))
