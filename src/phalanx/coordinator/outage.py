"""While the store does not answer: what a coordinator says of it to those who ask, and what it writes about it.

One line when it begins, one now and then, one when it is over: an outage of hours must not fill a disk with its name.
"""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.clock import Clock
from phalanx.diary import diary, told
from phalanx.store.protocol import Fenced, StoreError

log = diary("coordinator")
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
        if self.error is None or now - self._told_at >= TELL_EVERY_S:
            self._told_at = now
            log.warning("the store does not answer", for_s=round(now - self._since), **told(error))
        self.error = error

    def end(self) -> None:
        """It has answered."""
        if self.error is not None:
            log.info("the store answers again", after_s=round(self._clock.monotonic() - self._since))
            self.error = None


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
