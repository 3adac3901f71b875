"""The keeper's values: an attempt from its spawn until the runner forgets it, its lane, and the effects of the table.

The two lines of a usual attempt, to the runner and in the journal, are formatted here by hand: the JSON encoder would
cost more than everything else. `table.py` decides about attempts, `spawn.py` spawns them, `tree.py` signals them.
Small classes with slots, since dataclasses would double the keeper's memory.
"""

from __future__ import annotations

import json
import re
from collections import deque

from .attached import LogReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Options = dict[str, Any]
    Waiting = tuple[str, str, Options]

FOLDERS_MAX = 1000
_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}(?:/[0-9]{1,18}){2,3}")


def is_key(text: object) -> bool:
    """Whether it can be a key: job, position and number, perhaps a lane, separated by slashes."""
    return isinstance(text, str) and _KEY.fullmatch(text) is not None


class KeptAttempt:
    """A running or ended attempt. `pid` leads its process group and its session."""

    __slots__ = (
        "account",
        "artifacts",
        "born",
        "cgroups",
        "code",
        "counted_before",
        "doubted_at",
        "ended_at",
        "err",
        "exit",
        "files",
        "has_input",
        "input",
        "key",
        "kill_at",
        "lane",
        "log_max_bytes",
        "memo",
        "out",
        "outputs",
        "paused",
        "pid",
        "punched",
        "readers",
        "reason",
        "result",
        "scratch",
        "signal",
        "sizes",
        "slot",
        "slot_folder",
        "started_at",
        "unread",
        "used",
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
        self.result: str = options.get("result") or ""
        self.artifacts: str = options.get("artifacts") or ""
        self.scratch: str = options.get("scratch") or ""
        self.account: KeptAccount | None = None  # that it runs as; None: ours
        self.files: int | None = None  # which files it has left (`files.py`), if anybody looked
        self.cgroups: list[str] = [*(options.get("cgroups") or ())]
        self.slot = -1  # the number of its slot, while any of it is alive
        self.slot_folder = ""  # the cgroup of that slot, if it has one
        self.lane: int | None = options.get("lane")
        self.was_held = "held" in options  # its logs were created when it was checked
        self.log_max_bytes = int(options.get("log_max_bytes") or 0)
        self.memo = options.get("memo") or ""  # for a later runner
        self.counted_before: tuple[bytes, ...] = ()  # what its cgroups had counted when it started
        self.punched: dict[str, int] | None = None  # log path → the offset up to which it has been emptied
        self.paused = False
        # Of an attached one, how far each log was read; while one is far behind, the attempt is stopped (`unread`).
        self.readers: list[LogReader] | None = (
            [LogReader() for _ in self.logs] if options.get("attached") else None
        )
        self.sizes: tuple[int, ...] = ()
        self.has_input = bool(options.get("input"))
        self.input: tuple[int, int] | None = (
            None  # the write end of its pipe while it is open, and the pipe's inode
        )
        self.outputs: list[
            int
        ] = []  # the read ends of the pipes into its logs; -1: nobody can write any more
        self.unread = False
        self.kill_at: float | None = None  # set while it is being stopped
        self.why: str | None = None  # why it was ordered to stop, in the runner's word: a later runner asks
        self.reason: str | None = None
        self.doubted_at: float | None = None  # since when it is unknown whether an orphan belongs to it
        self.code: int | None = None
        self.signal: int | None = None
        self.ended_at: float | None = None  # when the leader ended; its tree may still be dying
        self.used = [0.0, 0, 0, 0]  # processor seconds, largest resident set, bytes read and written
        self.exit: str | None = None  # as JSON, once nothing of the tree is left

    @property
    def logs(self) -> tuple[str, ...]:
        """The files that it writes: one for both streams, or one for each."""
        return (self.out,) if self.out == self.err else (self.out, self.err)

    @property
    def folders(self) -> list[str]:
        """All the cgroups it is in."""
        return [*self.cgroups, self.slot_folder] if self.slot_folder else self.cgroups

    def started_line(self) -> str:
        """The runner reads up to the ticks since boot; the other fields are for a later keeper."""
        folders = self.folders
        cgroups = ",".join([_quoted_folder(folder) for folder in folders]) if folders else ""
        born = f"[{self.born[0]},{self.born[1]}]"
        return f'["started",{_quoted(self.key)},{self.pid},{self.started_at},{born},[{cgroups}]]'

    def ended_line(self) -> str:
        return f'["ended",{_quoted(self.key)},{self.exit}]'

    def input_line(self, keeper: int) -> str:
        """Where its standard input is written: a descriptor of the keeper, and the inode of the pipe."""
        fd, inode = self.input or (-1, 0)
        return f'["input",{_quoted(self.key)},{keeper},{fd},{inode}]'

    def row(self) -> str:
        ended = self.exit or "null"
        born = f"[{self.born[0]},{self.born[1]}]"
        memo = json.dumps(self.memo)
        return f'[{_quoted(self.key)},"{self._state()}",{self.pid},{self.started_at},{ended},{born},{memo}]'

    def _state(self) -> str:
        if self.exit is not None:
            return "ended"
        if self.kill_at is not None or self.ended_at is not None:
            return "stopping"
        return "paused" if self.paused else "running"

    def close(self, oom: bool, stderr_tail: str = "", forks_refused: int = 0) -> None:
        """Nothing of it is alive any more: its exit is final."""
        code = "null" if self.code is None else self.code
        signum = "null" if self.signal is None else self.signal
        reason = "null" if self.reason is None else f'"{self.reason}"'
        tail = json.dumps(stderr_tail) if stderr_tail else '""'
        why = "null" if self.why is None else json.dumps(self.why)
        files = "null" if self.files is None else self.files
        refused = f',"forks_refused":{forks_refused}' if forks_refused else ""
        self.exit = (
            f'{{"code":{code},"signal":{signum},"oom":{"true" if oom else "false"},"reason":{reason},'
            f'"started_at":{self.started_at},"ended_at":{self.ended_at},"stderr_tail":{tail},'
            f'"stopped":{"false" if self.kill_at is None else "true"},"why":{why},"files":{files}{refused},'
            f'"cpu_s":{self.used[0]},"memory_peak_bytes":{self.used[1]},"read_bytes":{self.used[2]},'
            f'"written_bytes":{self.used[3]}}}'
        )


def _quoted(text: str) -> str:
    """As JSON. Keys and most folders need no escapes, and checking that is faster than encoding them."""
    is_plain = text.isascii() and text.isprintable() and '"' not in text and "\\" not in text
    return f'"{text}"' if is_plain else json.dumps(text)


_folders: dict[str, str] = {}  # of cgroups, as JSON: they are used again and again


def _quoted_folder(folder: str) -> str:
    text = _folders.get(folder)
    if text is None:
        if len(_folders) >= FOLDERS_MAX:
            _folders.clear()
        text = _folders[folder] = _quoted(folder)
    return text


class KeptAccount:
    """The account of a brief, and the words before its command."""

    __slots__ = ("gid", "groups", "prefix", "uid")

    def __init__(self, content: dict[str, Any]) -> None:
        self.uid = int(content["uid"])
        self.gid = int(content["gid"])
        self.groups = [int(group) for group in content["groups"]]
        self.prefix: list[str] = [*content["prefix"]]


class KeptBrief:
    """What many attempts of one job share."""

    __slots__ = ("account", "argv", "cgroups", "cwd", "encoded", "env")

    def __init__(self, content: dict[str, Any]) -> None:
        self.argv: list[str] = [*content["argv"]]
        self.env: dict[str, str] = {**content["env"]}
        self.encoded: dict[bytes | str, bytes | str] = {}  # the same as bytes, once an attempt is spawned
        self.cwd: str | None = content.get("cwd")
        self.account = KeptAccount(content["account"]) if content.get("account") else None
        self.cgroups: str = (
            content.get("cgroups") or ""
        )  # the folder in which each attempt gets its own cgroup


class SpawnProcess:
    """Start a process; answered with `started` or `refused`. If it is held, only check whether it could start.

    That is answered with `prepared` or `refused`.
    """

    __slots__ = ("brief", "held", "key", "options")

    def __init__(self, key: str, brief: KeptBrief, options: Options, held: bool) -> None:
        self.key = key
        self.brief = brief
        self.options = options
        self.held = held


class Signal:
    """Send these signals, in this order, to everything that belongs to a running attempt."""

    __slots__ = ("attempt", "numbers")

    def __init__(self, attempt: KeptAttempt, *numbers: int) -> None:
        self.attempt = attempt
        self.numbers = numbers


class CloseInput:
    """Let go of the standard input of an attempt: it reads its end."""

    __slots__ = ("attempt",)

    def __init__(self, attempt: KeptAttempt) -> None:
        self.attempt = attempt


class SendLine:
    """Send this to the runner, if one is connected."""

    __slots__ = ("line",)

    def __init__(self, line: str) -> None:
        self.line = line


class RecordLine:
    """Write this to the journal."""

    __slots__ = ("line",)

    def __init__(self, line: str) -> None:
        self.line = line


class RecordAndSend:
    """Write it to the journal, then send it; a line that is not urgent may wait a moment for others.

    `began` is the key of an attempt of which this is the start, `ended` of one of which it is the end: a start that
    still waits when the end comes is not sent.
    """

    __slots__ = ("began", "ended", "line", "urgent")

    def __init__(self, line: str, urgent: bool, began: str = "", ended: str = "") -> None:
        self.line = line
        self.urgent = urgent
        self.began = began
        self.ended = ended


KeeperEffect = SpawnProcess | Signal | CloseInput | SendLine | RecordLine | RecordAndSend


class Lanes:
    """Lanes: attempts that run one after another on the same grant.

    The runner sends the next attempts ahead of time; the keeper starts one the moment its predecessor and all
    processes of that are gone. So a node does not idle until the runner knows, and continues when the runner is dead.
    A member of a gang takes its lane without running, and is ready until it may go. Neither waiting nor ready attempts
    are in the journal: a runner whose keeper died sends them again.
    """

    def __init__(self) -> None:
        self.waiting: dict[str, Waiting] = {}  # by key, in the order they came
        self.ready: dict[
            str, Waiting
        ] = {}  # attempts that hold a lane, or need none, and have not received go
        self._holders: dict[int, str] = {}
        self._queues: dict[int, deque[str]] = {}
        self._ends: dict[int, int] = {}  # how many ended in a lane since it was last short

    def is_taken(self, lane: int | None) -> bool:
        return lane in self._holders

    def take(self, lane: int | None, key: str) -> None:
        if lane is not None:
            self._holders[lane] = key

    def wait(self, lane: int, request: Waiting) -> None:
        self.waiting[request[0]] = request
        self._queues.setdefault(lane, deque()).append(request[0])

    def is_short(self, lane: int | None) -> bool:
        """Whether no more attempts wait for a lane than have ended in it since it was last short; one more has."""
        if lane is None or lane not in self._queues:
            return True
        ends = self._ends.get(lane, 0) + 1
        is_short = ends >= len(self._queues[lane])
        self._ends[lane] = 0 if is_short else ends
        return is_short

    def leave(self, lane: int | None, key: str) -> Waiting | None:
        """The holder is gone: returns the next attempt."""
        if lane is None or self._holders.get(lane) != key:
            return None
        del self._holders[lane]
        if lane not in self._queues:
            self._ends.pop(lane, None)
        return self.next(lane)

    def next(self, lane: int) -> Waiting | None:
        queue = self._queues.get(lane)
        if queue is None:
            return None
        request = self.waiting.pop(queue.popleft())
        if not queue:
            del self._queues[lane]
        return request

    def withdraw(self, key: str) -> bool:
        """Remove it from the waiting ones; returns whether it was among them."""
        request = self.waiting.pop(key, None)
        if request is None:
            return False
        lane = request[2]["lane"]
        self._queues[lane].remove(key)
        if not self._queues[lane]:
            del self._queues[lane]
        return True
