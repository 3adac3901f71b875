"""Signals that end an attached `run`: what each means, and the exit code that follows from it.

Ctrl-C is Python's own KeyboardInterrupt. A signal that whoever started us had ignored, as `nohup` does, stays ignored.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Literal

OnHangUp = Literal["cancel", "detach"]
SIGNALS = (
    signal.SIGHUP,
    signal.SIGTERM,
    signal.SIGQUIT,
)  # a closed terminal, `timeout` and the like, Ctrl-\\
# Wakes the main thread when nobody reads our output. Not SIGPIPE itself, which a socket that broke sends as well.
_CLOSED = signal.SIGALRM


class HungUp(Exception):
    """A signal ends this command; what becomes of the task is up to --on-hangup."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number.name)
        self.number = number

    @property
    def exit_code(self) -> int:
        return 128 + self.number


class LeavesRunning(HungUp):
    """Ctrl-\\ leaves the task running."""


@contextmanager
def caught_signals() -> Iterator[None]:
    """While it lasts, each of the signals raises HungUp, and Ctrl-\\ raises LeavesRunning."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in (*SIGNALS, _CLOSED)}
    caught = [each for each, was in before.items() if was != signal.SIG_IGN or each == _CLOSED]
    for number in caught:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, before[number] or signal.SIG_DFL)


def output_closed() -> None:
    """Nobody reads our output any more; may be called by any thread."""
    main = threading.main_thread().ident
    if main is not None and signal.getsignal(_CLOSED) is _raise:
        signal.pthread_kill(main, _CLOSED)


def _raise(number: int, _frame: FrameType | None) -> None:
    found = signal.SIGPIPE if number == _CLOSED else signal.Signals(number)
    raise LeavesRunning(found) if found == signal.SIGQUIT else HungUp(found)
