"""The messages between runner and keeper, as values. The keeper reads and writes them as plain JSON."""

from __future__ import annotations

import os
from collections.abc import Sequence

from msgspec import Struct

from phalanx.core.runner.attempts import ProcessEnd

TICKS_PER_S = os.sysconf("SC_CLK_TCK")  # the kernel's unit for the start of a process
Ticks = tuple[int, int]  # since boot, one before and one after; zeros: unknown


class Launch(Struct, frozen=True, omit_defaults=True):
    """What one attempt has beyond its job's brief. Log paths are absolute, and their folder exists."""

    out: str
    err: str
    env: dict[str, str] = {}
    cpus: Sequence[int] | None = None  # the kernel CPUs it may run on
    cgroups: Sequence[str] | None = None  # the folders of runner/cgroups.py it starts in
    log_max_bytes: int = 0  # 0 sets no bound
    lane: int | None = None  # attempts of one lane run one after another, in the order they were sent
    limit_s: float | None = None  # how long it may run, for its environment; the runner keeps the limit
    held: bool = False  # only prepare it, and start it with `go`
    not_after: float | None = None  # the instant since boot from which on it is refused
    spaces: dict[str, str] | None = None  # the namespaces it starts in: see keeper/namespaces.py
    result: str = ""  # the file for its result
    artifacts: str = ""  # the folder for its artifacts, which the keeper makes; empty: it is there
    scratch: str = ""  # its scratch folder, which the keeper makes; empty: it is there, or there is none
    memo: str = ""  # what a later runner has to know; the keeper gives it back in its listing
    input: bool = False  # its standard input is a pipe that the keeper holds open
    attached: bool = False  # it is stopped while the reader of its output is far behind
    processes_max: int = (
        0  # the most processes of its account while it starts one (RLIMIT_NPROC); 0: as the keeper
    )
    argv: Sequence[str] | None = None  # its own command, instead of the brief's


class BriefAccount(Struct, frozen=True):
    """The account of the attempts of a brief, and the words before their command that give it to them."""

    uid: int
    gid: int
    groups: Sequence[int]
    prefix: Sequence[str]


class ProcessStarted(Struct, frozen=True, array_like=True, tag="started"):
    key: str
    pid: int
    started_at: float
    born: Ticks = (0, 0)


class Pong(Struct, frozen=True, array_like=True, tag="pong"):
    """The keeper works."""


class ProcessReady(Struct, frozen=True, array_like=True, tag="ready"):
    """A held attempt has its lane, and its program, folder and logs exist."""

    key: str


class ProcessRefused(Struct, frozen=True, array_like=True, tag="refused"):
    """Not started. Codes: retracted, late, not_found, not_executable, no_cwd, no_log, no_brief, not_readable,
    stopped, fenced, exhausted, spawn_failed."""

    key: str
    code: str
    message: str


class ProcessEnded(Struct, frozen=True, array_like=True, tag="ended"):
    """The attempt is over and nothing of its process tree is alive."""

    key: str
    exit: ProcessEnd


class ProcessUnread(Struct, frozen=True, array_like=True, tag="unread"):
    """An attached attempt is stopped until its output is read, or goes on."""

    key: str
    unread: bool


class ProcessInput(Struct, frozen=True, array_like=True, tag="input"):
    """An attempt has standard input: a pipe, which is this descriptor of its keeper; -1: it was closed."""

    key: str
    keeper: int
    descriptor: int
    inode: int


class Misunderstood(Struct, frozen=True, array_like=True, tag="misunderstood"):
    """The keeper could not read a request: a mistake of ours, or a keeper of an older version."""

    text: str


class KeeperLost(Struct, frozen=True):
    """The keeper died, or a newer runner took its connection. Call `open` again, then ask for a listing."""

    message: str


class Row(Struct, frozen=True, array_like=True):
    """One attempt in a listing. States: waiting (for its lane), ready, running, paused, stopping, ended."""

    key: str
    state: str
    pid: int
    started_at: float
    exit: ProcessEnd | None = None
    born: Ticks = (0, 0)
    memo: str = ""


class Facts(Struct, frozen=True):
    """About the keeper itself. `log_cap` is false when a filesystem cannot keep logs within their bound."""

    version: int
    log_cap: bool = True


class Listing(Struct, frozen=True, array_like=True, tag="listing"):
    attempts: tuple[Row, ...]
    facts: Facts


News = ProcessReady | ProcessStarted | ProcessRefused | ProcessEnded  # of one process
Answer = News | ProcessUnread | ProcessInput | Misunderstood | Listing | Pong
Event = News | ProcessUnread | ProcessInput | Misunderstood | KeeperLost  # what a runner receives


def instant_of(born: Ticks, now: float, since_boot_s: float) -> float | None:
    """A start in ticks since boot, by our own clock: the wall clock may have been set since."""
    if not born[1]:
        return None
    return now - max(0.0, since_boot_s - (born[1] + 1) / TICKS_PER_S)
