"""While the store does not answer: what a coordinator answers, and what it logs.

One line when it begins, one now and then, one when it is over: an outage of hours must not fill a disk with its name.
"""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.clock import Clock
from phalanx.coordinator.damage import damaged
from phalanx.errors import NotActive, Unavailable
from phalanx.logger import logger, told
from phalanx.store.copy import MIGRATED
from phalanx.store.protocol import Candidate, Fenced, LogHole, Regressed, StoreError

log = logger("coordinator")
TELL_EVERY_S = 60.0


class Outage:
    """Whether the store answers this coordinator and, if not, since when and what it said last."""

    def __init__(self, clock: Clock) -> None:
        self.error: StoreError | None = None
        self._clock = clock
        self._since = 0.0
        self._told_at = 0.0

    def meet(self, error: StoreError) -> None:
        """The store did not answer, or not as it should."""
        now = self._clock.monotonic()
        if self.error is None:
            self._since = now
        is_wrong = isinstance(error, LogHole | Regressed)
        is_news = self.error is None or (is_wrong and not isinstance(self.error, LogHole | Regressed))
        if is_news or now - self._told_at >= TELL_EVERY_S:
            self._told_at = now
            what = "the log cannot be trusted" if is_wrong else "the store does not answer"
            log.warning(what, for_s=round(now - self._since), **_in_detail(error))
        self.error = error

    @property
    def is_hole(self) -> bool:
        """Whether it answers, and its log has a hole."""
        return isinstance(self.error, LogHole)

    def not_ready(self, what: str) -> Unavailable:
        """What the coordinator cannot do and, if the store is why, what the store says."""
        trouble = self.error
        if isinstance(trouble, LogHole):
            return damaged(trouble)
        detail = f"this coordinator {what}" + (f", its store does not answer: {trouble}" if trouble else "")
        hint = trouble.hint if trouble else ""
        return Unavailable(detail, reason="NotReady", hint=hint, retry_after_s=1.0)

    def end(self) -> None:
        """It has answered."""
        if self.error is not None:
            log.info("the store is reachable again", after_s=round(self._clock.monotonic() - self._since))
            self.error = None


def _in_detail(error: StoreError) -> dict[str, object]:
    """What is wrong and, of a hole in the log, which jobs are concerned."""
    if not isinstance(error, LogHole):
        return {**told(error)}
    return {**told(error), "jobs_concerned": error.count, "some_of_them": " ".join(error.jobs)}


def standing_by(active: Candidate | None, trouble: StoreError | None) -> NotActive:
    """Why a standby does nothing for people, and who would."""
    extra: dict[str, str] = {}
    if active is None:
        detail = "this coordinator is a standby, and no other is known to be active"
    else:
        detail = f"this coordinator is a standby; {active.name} is active at {active.address}"
        extra = {"leader": active.address}
    if active is not None and active.name.startswith(MIGRATED):
        to = active.name.removeprefix(MIGRATED)
        detail, extra = f"this store was moved to {to}: coordinators belong there now (--store)", {}
    if trouble is not None:  # so who is active is hearsay
        detail = f"this coordinator is a standby, and its store does not answer: {trouble}"
    return NotActive(detail, hint="ask the active coordinator", retry_after_s=1.0, extra=extra)


def in_words(error: Exception) -> str:
    """What the store said, or that it said nothing."""
    return str(error) or "the store did not answer in time"


def why_over(ends: Iterable[BaseException | None]) -> str:
    """Why a term ended, of how its tasks did; those that were only told to end have nothing to say."""
    fenced = next((each for each in ends if isinstance(each, Fenced)), None)
    if fenced is None:
        return "its turns have ended"
    if isinstance(fenced.__cause__, Exception):
        return f"its lease is over and cannot be confirmed: {in_words(fenced.__cause__)}"
    return str(fenced)
