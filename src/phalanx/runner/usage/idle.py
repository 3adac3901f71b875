"""Whether a device that a task holds is idle: its mean utilisation over the last minutes is below a threshold."""

from __future__ import annotations

from collections import deque

from msgspec import Struct

PARTS = 10  # of the time that is looked at; it moves on by one of them


class IdleRule(Struct, frozen=True):
    """From when on a device counts as idle; 0 seconds: never."""

    use_below: float = 0.05  # mean utilisation, from 0 to 1
    after_s: float = 900.0


class IdleWindow:
    """The last minutes of one device, in parts: of each, how long it was sampled and how busy it was."""

    __slots__ = ("_busy_s", "_parts", "_rule", "_sampled_s", "idle_s", "use")

    def __init__(self, rule: IdleRule) -> None:
        self._rule = rule
        self._parts: deque[tuple[float, float]] = deque()
        self._sampled_s = self._busy_s = 0.0
        self.idle_s = 0.0  # 0: it is in use, or has not been looked at long enough
        self.use = 0.0  # the mean that this rests on

    def add(self, use: float, span_s: float) -> None:
        """A sample of the last `span_s` seconds."""
        if not self._rule.after_s:
            return
        self._sampled_s += span_s
        self._busy_s += use * span_s
        if self.idle_s:
            self.idle_s += span_s
        if self._sampled_s < self._rule.after_s / PARTS:
            return
        self._parts.append((self._sampled_s, self._busy_s))
        self._sampled_s = self._busy_s = 0.0
        sampled_s = sum(part[0] for part in self._parts)
        while sampled_s - self._parts[0][0] >= self._rule.after_s:
            sampled_s -= self._parts.popleft()[0]
        if sampled_s < self._rule.after_s:
            return
        self.use = sum(part[1] for part in self._parts) / sampled_s
        self.idle_s = (self.idle_s or sampled_s) if self.use < self._rule.use_below else 0.0
