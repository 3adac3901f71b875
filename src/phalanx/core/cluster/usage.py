"""What the tasks of one job used: of the newest ended attempt of each task, and the sums over all attempts.

Four small numbers a task, in one column that exists once an attempt has reported its usage; numbers of devices only for
tasks that had some. `apply/usage.py` notes them at the end of an attempt.
"""

from __future__ import annotations

from array import array

from phalanx.core.model.usage import AttemptUsage, UsageTotals

_WIDTH = 4
DeviceNumbers = tuple[float, float, float, int]  # as the last fields of AttemptUsage


class JobUsage:
    """The usage of one job's tasks, by position."""

    __slots__ = ("column", "devices", "totals")

    def __init__(
        self,
        column: bytes | None = None,
        devices: dict[int, DeviceNumbers] | None = None,
        totals: UsageTotals | None = None,
    ) -> None:
        self.column = None if column is None else array("f", column)
        self.devices = {} if devices is None else devices
        self.totals = UsageTotals() if totals is None else totals

    def note(self, position: int, tasks: int, used: AttemptUsage) -> None:
        """What the newest attempt of a task used, instead of the one before it."""
        if (column := self.column) is None:
            column = self.column = array("f", bytes(4 * _WIDTH * tasks))
        at = _WIDTH * position
        column[at] = used.cpu_s
        column[at + 1] = used.memory_peak_bytes
        column[at + 2] = used.read_bytes
        column[at + 3] = used.written_bytes
        if self.devices:
            self.devices.pop(position, None)
        if used.device_s:
            self.devices[position] = (
                used.device_s,
                used.device_busy_s,
                used.device_idle_s,
                used.device_memory_peak_bytes,
            )

    def of(self, position: int) -> AttemptUsage | None:
        """What the newest ended attempt of a task used; None if that was not measured."""
        if self.column is None or not self.column[_WIDTH * position + 1]:
            return None
        cpu_s, peak, read, written = self.column[_WIDTH * position : _WIDTH * (position + 1)]
        return AttemptUsage(cpu_s, int(peak), int(read), int(written), *self.devices.get(position, ()))
