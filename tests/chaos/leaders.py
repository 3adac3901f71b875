"""Which coordinator leads, as seen from outside: every coordinator is polled, and each yes is kept.

From the answers follow the times without a leader, and whether two ever led at the same moment.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from dataclasses import dataclass
from itertools import pairwise
from urllib.parse import urlsplit

from tests.chaos.clock import clock

ASK_EVERY_S = 0.1
ANSWER_WITHIN_S = 1.0
CLOSE_S = 0.5  # between two answers of a leader that can be reached


@dataclass(frozen=True)
class Yes:
    """A coordinator said that it leads."""

    name: str
    epoch: int
    asked_at: float
    answered_at: float


class LeaderWatch:
    """One thread for each coordinator, so that a silent one delays no other."""

    def __init__(self, addresses: dict[str, str], token: str, tls: ssl.SSLContext | None) -> None:
        self.answers: list[Yes] = []
        self._headers = {"Authorization": f"Bearer {token}"}
        self._tls = tls
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask, args=(name, address), daemon=True)
            for name, address in addresses.items()
        ]

    def open(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._over.set()
        for thread in filter(threading.Thread.is_alive, self._threads):
            thread.join(5)

    def leader(self) -> str | None:
        """The last one that answered yes, if that was just now."""
        if not self.answers or clock() - self.answers[-1].answered_at > 1.0:
            return None
        return self.answers[-1].name

    @property
    def epoch(self) -> int:
        return max((each.epoch for each in self.answers[-20:]), default=0)

    def _ask(self, name: str, address: str) -> None:
        line = self._dialled(address)
        while not self._over.wait(ASK_EVERY_S):
            asked_at = clock()
            try:
                line.request("GET", "/leaderz", headers=self._headers)
                answer = line.getresponse()
                body = answer.read()
            except (OSError, http.client.HTTPException):
                line.close()  # the next request connects again
                continue
            if answer.status == 200:
                self.answers.append(Yes(name, int(json.loads(body)["epoch"]), asked_at, clock()))
        line.close()

    def _dialled(self, address: str) -> http.client.HTTPConnection:
        site = urlsplit(address)
        assert site.hostname is not None
        if site.scheme == "https":
            return http.client.HTTPSConnection(
                site.hostname, site.port, timeout=ANSWER_WITHIN_S, context=self._tls
            )
        return http.client.HTTPConnection(site.hostname, site.port, timeout=ANSWER_WITHIN_S)


def reigns(answers: list[Yes]) -> list[dict[str, object]]:
    """Which coordinator led, under which epoch, from when to when: one row for each term."""
    rows: dict[tuple[int, str], list[float]] = {}
    for each in answers:
        rows.setdefault((each.epoch, each.name), []).append(each.answered_at)
    return [
        {"epoch": epoch, "leader": name, "first_at": round(min(times), 3), "last_at": round(max(times), 3)}
        for (epoch, name), times in sorted(rows.items())
    ]


def led(answers: list[Yes]) -> list[tuple[float, float]]:
    """When a leader was known and could be reached: spans in which the answers are close to each other."""
    spans: list[tuple[float, float]] = []
    for at in sorted(each.answered_at for each in answers):
        if spans and at - spans[-1][1] <= CLOSE_S:
            spans[-1] = (spans[-1][0], at)
        else:
            spans.append((at, at))
    return spans


def vacancies(answers: list[Yes]) -> list[float]:
    """Seconds without a leader at each change of epoch, from the last yes of the old to the first of the new."""
    last: dict[int, float] = {}
    first: dict[int, float] = {}
    for each in answers:
        last[each.epoch] = max(last.get(each.epoch, 0.0), each.answered_at)
        first[each.epoch] = min(first.get(each.epoch, each.answered_at), each.answered_at)
    epochs = sorted(first)
    return [max(0.0, first[new] - last[old]) for old, new in pairwise(epochs)]


def rivals(answers: list[Yes]) -> list[str]:
    """Coordinators that were asked after one of a higher epoch had answered yes, and still answered yes."""
    begun: list[tuple[float, int]] = []  # when an epoch was first known to be current
    newest = 0
    for each in sorted(answers, key=lambda each: each.answered_at):
        if each.epoch > newest:
            newest = each.epoch
            begun.append((each.answered_at, each.epoch))
    found = []
    for each in answers:
        later = next((at for at, epoch in begun if epoch > each.epoch), None)
        if later is not None and each.asked_at > later:
            late_s = each.asked_at - later
            found.append(
                f"{each.name} still led in epoch {each.epoch}, {late_s:.2f} s after a newer one began"
            )
    names = {(each.name, each.epoch) for each in answers}
    epochs = [epoch for _, epoch in names]
    found += [f"epoch {epoch} was held by two" for epoch in set(epochs) if epochs.count(epoch) > 1]
    return found
