"""One check of `phalanx doctor` and how it is run: in a thread with a deadline, so that nothing hangs the command."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import Thread
from typing import Literal

from msgspec import Struct

from phalanx.clock import SystemClock
from phalanx.errors import PhalanxError

WITHIN_S = 5.0  # of each check
State = Literal["ok", "warn", "fail"]


class DoctorLine(Struct, frozen=True):
    """What one check found, and what to do about it."""

    check: str
    state: State
    text: str
    fix: str = ""


Check = tuple[str, Callable[[], Iterable[DoctorLine]]]


def ok(check: str, text: str) -> DoctorLine:
    return DoctorLine(check, "ok", text)


def warn(check: str, text: str, fix: str) -> DoctorLine:
    return DoctorLine(check, "warn", text, fix)


def fail(check: str, text: str, fix: str) -> DoctorLine:
    return DoctorLine(check, "fail", text, fix)


def run_checks(checks: Sequence[Check], within_s: float = WITHIN_S) -> list[DoctorLine]:
    """All of them at once; one that takes longer than its time is a failure of its own."""
    found: dict[str, list[DoctorLine]] = {}
    threads = []
    for name, check in checks:
        thread = Thread(target=_run, args=(name, check, found), name=f"doctor {name}", daemon=True)
        thread.start()
        threads.append((name, thread))
    until = SystemClock().monotonic() + within_s
    for _, thread in threads:
        thread.join(max(0.0, until - SystemClock().monotonic()))
    late = f"no answer within {within_s:g} s"
    return [
        line
        for name, _ in threads
        for line in found.get(name) or [fail(name, late, "see whether a disk, a driver or a network hangs")]
    ]


def _run(name: str, check: Callable[[], Iterable[DoctorLine]], found: dict[str, list[DoctorLine]]) -> None:
    try:
        found[name] = list(check())
    except PhalanxError as error:
        found[name] = [fail(name, error.detail, error.hint)]
    except (OSError, ValueError) as error:
        found[name] = [fail(name, f"{type(error).__name__}: {error}", "see the message")]
