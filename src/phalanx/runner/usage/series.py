"""The curve of one attempt in bounded memory: fine for the last minutes, coarser the older it gets.

When it is full, the older half is merged two by two, so that a week is still told in a few hundred points. Rates become
means over the longer span, memory and processes keep the most.
"""

from __future__ import annotations

from array import array

from phalanx.link.usage import POINTS_MAX, UsagePoint

_WIDTH = 9
_AT, _SPAN, _CORES, _MEMORY, _READ, _WRITTEN, _PROCESSES, _USE, _DEVICE_MEMORY = range(_WIDTH)
_MEANS = (_CORES, _READ, _WRITTEN, _USE)
_PEAKS = (_MEMORY, _PROCESSES, _DEVICE_MEMORY)


class UsageSeries:
    """At most so many points. Times are kept as seconds since the first one, in half the bytes of an instant."""

    def __init__(self, begins_at: float, most: int = POINTS_MAX) -> None:
        self._begins_at = begins_at
        self._most = max(4, most)
        self._numbers = array("f")

    def __len__(self) -> int:
        return len(self._numbers) // _WIDTH

    def add(self, point: UsagePoint) -> None:
        if len(self) >= self._most:
            self._merge_older()
        self._numbers.extend(
            (
                point.at - self._begins_at,
                point.span_s,
                point.cores,
                point.memory_bytes,
                point.read_bytes_per_s,
                point.written_bytes_per_s,
                point.processes,
                point.device_use,
                point.device_memory_bytes,
            )
        )

    def points(self, most: int) -> tuple[UsagePoint, ...]:
        """The whole time in at most so many points, the oldest first."""
        rows = [self._row(number) for number in range(len(self))] if most > 0 else []
        while len(rows) > most:
            rows = _merged(rows, len(rows))
        return tuple(UsagePoint(self._begins_at + row[_AT], *row[1:]) for row in rows)

    def _row(self, number: int) -> list[float]:
        return self._numbers[_WIDTH * number : _WIDTH * (number + 1)].tolist()

    def _merge_older(self) -> None:
        rows = [self._row(number) for number in range(len(self))]
        self._numbers = array("f", [number for row in _merged(rows, len(rows) // 2) for number in row])


def _merged(rows: list[list[float]], older: int) -> list[list[float]]:
    """The first `older` of them two by two, the others as they are."""
    older -= older % 2
    pairs = [_joined(rows[at], rows[at + 1]) for at in range(0, older, 2)]
    return [*pairs, *rows[older:]] if pairs else rows[1:]


def _joined(one: list[float], other: list[float]) -> list[float]:
    span_s = one[_SPAN] + other[_SPAN]
    row = list(other)
    for name in _MEANS:
        if name == _USE and min(one[_USE], other[_USE]) < 0:  # one of them was not sampled
            row[_USE] = max(one[_USE], other[_USE])
            continue
        row[name] = (one[name] * one[_SPAN] + other[name] * other[_SPAN]) / span_s if span_s else other[name]
    for name in _PEAKS:
        row[name] = max(one[name], other[name])
    row[_SPAN] = span_s
    return row
