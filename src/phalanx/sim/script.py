"""What a simulated process does, given by its command line: how long it runs, how it ends, how it takes a stop.

run 3.5 0            works for 3.5 s and exits with 0
flaky 1.0 2          fails in its first two attempts
signal 2.0 11        is ended by signal 11
stubborn 9.0 0       as run, but ignores SIGTERM
missing              cannot be started at all
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

ENDLESS_S = 1e9


class Script(Struct, frozen=True):
    """What one attempt does if it is not stopped."""

    run_s: float
    code: int | None
    signal: int | None = None
    heeds_sigterm: bool = True
    exists: bool = True


def script(argv: Sequence[str], restarts: int) -> Script:
    """Read the command line of an attempt that comes after this many failed ones."""
    verb, *words = argv
    match verb:
        case "run":
            return Script(float(words[0]), int(words[1]))
        case "flaky":
            return Script(float(words[0]), 0 if restarts >= int(words[1]) else 1)
        case "signal":
            return Script(float(words[0]), None, int(words[1]))
        case "stubborn":
            return Script(float(words[0]), int(words[1]), heeds_sigterm=False)
        case "missing":
            return Script(0.0, None, exists=False)
    raise ValueError(f"no such script: {verb}")
