"""Which checks of a node fail: a failure counts at once, a recovery after several passes in a row. No I/O."""

from __future__ import annotations

import re

from msgspec import Struct

from phalanx.core.model.health import REASON_MAX, DeviceHealth, NodeHealth

_NUMBER = re.compile(r"[0-9]+")


class CheckResult(Struct, frozen=True):
    """What one check found: about the node, or one device of it. An empty reason is a pass."""

    check: str  # what was looked at, such as `disk /var`; the same text each time
    reason: str = ""
    device: int | None = None


class Failing(Struct):
    """A check that failed, and has not passed often enough since."""

    reason: str
    device: int | None
    passes: int = 0


class CheckStanding:
    """The checks of one node, as their findings come in."""

    def __init__(self, passes: int, *, evict: bool) -> None:
        self._passes = passes
        self._evict = evict
        self._failing: dict[str, Failing] = {}

    def note(self, found: CheckResult) -> None:
        """Take one finding. While a check fails its reason stays, unless more than numbers in it has changed."""
        known = self._failing.get(found.check)
        if found.reason:
            reason = _clean(found.reason)
            is_new = known is None or _shape(known.reason) != _shape(reason)
            if known is None or is_new:
                self._failing[found.check] = Failing(reason, found.device)
            else:
                known.passes = 0
        elif known is not None:
            known.passes += 1
            if known.passes >= self._passes:
                del self._failing[found.check]

    def is_failing(self, check: str) -> bool:
        return check in self._failing

    def keep_only(self, checks: set[str]) -> None:
        """Forget checks that are no longer made."""
        self._failing = {check: each for check, each in self._failing.items() if check in checks}

    @property
    def health(self) -> NodeHealth | None:
        """What the coordinator is told; None while nothing fails."""
        if not self._failing:
            return None
        whole = [each.reason for each in self._failing.values() if each.device is None]
        devices: dict[int, str] = {}
        for each in self._failing.values():
            if each.device is not None:
                devices.setdefault(each.device, each.reason)
        failed = tuple(DeviceHealth(index, reason) for index, reason in sorted(devices.items()))
        return NodeHealth("; ".join(whole)[:REASON_MAX], failed, self._evict)


def _clean(text: str) -> str:
    """One line of printable characters."""
    line = "".join(sign if sign.isprintable() else " " for sign in text)
    return " ".join(line.split())[:REASON_MAX]


def _shape(text: str) -> str:
    return _NUMBER.sub("0", text)
