"""Functions for tests of executors, in a module that workers can import quickly. They tell of themselves by files."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path


class Custom(Exception):
    """An exception with arguments of its own."""

    def __init__(self, number: int, word: str) -> None:
        super().__init__(number, word)
        self.number = number


class Unreadable(Exception):
    """It can be pickled, and cannot be read."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def square(number: int) -> int:
    return number * number


def raises(number: int) -> int:
    raise Custom(number, "planted")


def raises_unreadable() -> None:
    raise Unreadable(1, 2)


def note(folder: str, number: int) -> int:
    """Leave one file for each run of this call."""
    name = f"{number}-{os.getpid()}-{os.urandom(4).hex()}"
    (Path(folder) / name).write_text(str(os.getpid()))
    return number


def wait_for(folder: str, number: int, file: str) -> int:
    """Note that this call runs, and go on when a file is there."""
    note(folder, number)
    while not (Path(folder) / file).exists():
        threading.Event().wait(0.02)
    return number


def raise_until(folder: str, number: int, times: int) -> int:
    """Raise, each time with the number of the run, until it has run so often."""
    note(folder, number)
    ran = len(runs(Path(folder), number))
    if ran <= times:
        raise Custom(ran, "planted")
    return number


def raise_then_wait(folder: str, number: int, file: str) -> int:
    """Raise in the first run, and wait for a file in the next."""
    if not runs(Path(folder), number):
        note(folder, number)
        raise Custom(1, "planted")
    return wait_for(folder, number, file)


def die_once(folder: str, number: int) -> int:
    """The process is killed the first time."""
    first = not list(Path(folder).glob(f"{number}-*"))
    note(folder, number)
    if first:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die_always() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def large(size: int) -> bytes:
    return bytes(size)


def environment(name: str) -> str | None:
    return os.environ.get(name)


def runs(folder: Path, number: int) -> list[int]:
    """The processes in which a call has run."""
    return [int(text) for each in folder.glob(f"{number}-*") if (text := each.read_text())]
