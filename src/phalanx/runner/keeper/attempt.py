"""One attempt as the keeper knows it: from its spawn until the runner forgets it.

Plain values, and their words: what is said of an attempt to the runner and written in the journal. The two
lines of a usual attempt are formatted here by hand, as the JSON encoder would cost more than the rest of it.
What is decided about it is in `table.py`, spawning in `spawn.py`, signals in `tree.py`.
"""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Options = dict[str, Any]  # what a start request says beyond its brief


class KeptAttempt:
    """A running or ended attempt. `pid` leads its process group and its session."""

    __slots__ = (
        "born",
        "cgroups",
        "code",
        "doubted_at",
        "ended_at",
        "err",
        "exit",
        "key",
        "kill_at",
        "lane",
        "log_max_bytes",
        "oom_kills_before",
        "out",
        "paused",
        "pid",
        "punched",
        "reason",
        "signal",
        "slot",
        "slot_folder",
        "started_at",
        "was_held",
        "why",
    )

    def __init__(self, key: str, options: Options) -> None:
        self.key = key
        self.pid = 0
        self.born = (0, 0)  # the two clock ticks between which the kernel made the leader
        self.started_at = 0.0
        self.out: str = options["out"]
        self.err: str = options["err"]
        self.cgroups: list[str] = [*(options.get("cgroups") or ())]
        self.slot = -1  # the number of its slot, while any of it is alive
        self.slot_folder = ""  # the cgroup of that slot, if it has one
        self.lane: int | None = options.get("lane")
        self.was_held = "held" in options  # its logs were made when it was checked
        self.log_max_bytes = int(options.get("log_max_bytes") or 0)
        self.oom_kills_before = 0
        self.punched: dict[str, int] | None = None  # log path → the offset up to which it has been emptied
        self.paused = False
        self.kill_at: float | None = None  # set while it is being stopped
        self.why: str | None = None  # it was told to stop, in the runner's words: a later runner asks
        self.reason: str | None = None
        self.doubted_at: float | None = None  # since when an orphan may or may not be its own
        self.code: int | None = None
        self.signal: int | None = None
        self.ended_at: float | None = None  # when the leader ended; its tree may still be dying
        self.exit: str | None = None  # as JSON, once nothing of the tree is left

    @property
    def folders(self) -> list[str]:
        """All the cgroups it is in."""
        return [*self.cgroups, self.slot_folder] if self.slot_folder else self.cgroups

    def started_line(self) -> str:
        """The runner reads as far as the ticks since boot; the rest is for a later keeper."""
        cgroups = ",".join([_quoted(folder) for folder in self.folders])
        born = f"[{self.born[0]},{self.born[1]}]"
        return f'["started",{_quoted(self.key)},{self.pid},{self.started_at},{born},[{cgroups}]]'

    def ended_line(self) -> str:
        return f'["ended",{_quoted(self.key)},{self.exit}]'

    def row(self) -> str:
        ended = self.exit or "null"
        born = f"[{self.born[0]},{self.born[1]}]"
        return f'[{_quoted(self.key)},"{self._state()}",{self.pid},{self.started_at},{ended},{born}]'

    def _state(self) -> str:
        if self.exit is not None:
            return "ended"
        if self.kill_at is not None or self.ended_at is not None:
            return "stopping"
        return "paused" if self.paused else "running"

    def close(self, oom: bool, stderr_tail: str = "") -> None:
        """Nothing of it is alive any more: its exit is final."""
        code = "null" if self.code is None else self.code
        signum = "null" if self.signal is None else self.signal
        reason = "null" if self.reason is None else f'"{self.reason}"'
        tail = json.dumps(stderr_tail) if stderr_tail else '""'
        why = "null" if self.why is None else json.dumps(self.why)
        self.exit = (
            f'{{"code":{code},"signal":{signum},"oom":{"true" if oom else "false"},"reason":{reason},'
            f'"started_at":{self.started_at},"ended_at":{self.ended_at},"stderr_tail":{tail},'
            f'"stopped":{"false" if self.kill_at is None else "true"},"why":{why}}}'
        )


def _quoted(text: str) -> str:
    """As JSON. Keys and most folders need no escapes, and to find that out is faster than to encode them."""
    is_plain = text.isascii() and text.isprintable() and '"' not in text and "\\" not in text
    return f'"{text}"' if is_plain else json.dumps(text)
