"""Honest work beside an attack: submits and cancels of a user, one after another, each timed, each in its phase."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import phalanx
from phalanx.client.http import HttpTransport
from phalanx.errors import PhalanxError

EVERY_S = 0.02


class Sample(NamedTuple):
    phase: str
    what: str  # submit or cancel
    took_s: float
    trouble: str = ""


class Honest(threading.Thread):
    """Submits what waits for ever, and cancels it; what an honest user does, only more often."""

    def __init__(self, address: str, token: str) -> None:
        super().__init__(daemon=True)
        self.phase = "before"
        self.samples: list[Sample] = []
        self._client = phalanx.Client(token=token, exchange=HttpTransport(address, patience_s=0.0))
        self._stopping = threading.Event()

    def run(self) -> None:
        while not self._stopping.wait(EVERY_S):
            id = self._timed("submit", self._submit)
            if id is not None:
                self._timed("cancel", self._cancel, id)

    def stop(self) -> None:
        self._stopping.set()
        self.join(30)
        self._client.close()

    def _submit(self) -> str:
        return self._client.submit(command=["/bin/true"], gpus=998, allow_infeasible=True).task_ids[0]

    def _cancel(self, id: str) -> str:
        self._client.cancel(id)
        return id

    def _timed(self, what: str, work: Callable[..., str], *given: str) -> str | None:
        phase, began = self.phase, time.perf_counter()
        try:
            done = work(*given)
        except PhalanxError as error:
            self.samples.append(Sample(phase, what, time.perf_counter() - began, str(error)))
            return None
        self.samples.append(Sample(phase, what, time.perf_counter() - began))
        return done


def p(samples: list[float], share: float) -> float:
    """A percentile in milliseconds; 0 of none."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1000 if ordered else 0.0
