"""The log of a VPS: lines on its standard streams, which the keeper keeps as those of every task."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """One line; what a client may have chosen in it cannot write a second one."""
    sys.stdout.write("".join(each if each.isprintable() else "?" for each in text) + "\n")
    sys.stdout.flush()


def complain(text: str) -> None:
    """Why it ends: the last words that `phalanx why` shows."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
