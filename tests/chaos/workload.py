"""The users of the rig: they submit single tasks, arrays and gangs, cancel some, and remember every answer.

The first has the cluster's own token, the others one of role `user` each, and compete with each other. They read
lists, and sometimes try to cancel another's job. How long each waited for an answer is recorded.

A submission whose answer was lost is sent again with the same request id until it is answered: whatever was accepted
is known here by its job's id, and was accepted once.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import phalanx
from phalanx.errors import NotFound, PhalanxError
from tests.chaos import life
from tests.chaos.chaos_cluster import CORES, ChaosCluster
from tests.chaos.clock import clock

FINAL = ("Completed", "Failed", "Cancelled")
_LOOK_S = 0.25
_SECONDS = (0.1, 0.3, 0.5, 0.5, 1.0, 1.0, 2.0, 2.0, 4.0, 15.0)  # a few outlive their node's lease
_TOO_LONG_S = 90.0  # the run time of tasks that are meant to reach their limit
_ENOUGH_S = 3600.0  # a limit that is not reached, unless hours pass at once
_IN_A_ROW_S = 40.0  # what the tasks of an array may take together, two at a time: all must end within HEAL_S
_LISTED = 20


@dataclass
class Asked:
    """One submission, what it asked for, and its answer."""

    request: str
    kind: str
    tasks: int
    codes: tuple[int, ...]  # with which the tasks end, by position
    job: str = ""  # once it was accepted
    accepted_at: float = 0.0
    cancel_began_at: float = 0.0
    cancel_at: float | None = None  # when its user will cancel it
    is_cancelled: bool = False  # it was sent, and may have arrived
    cancelled: int = 0  # how many tasks the answer reported as cancelled
    troubles: int = 0  # answers that did not come, or said: later
    refused: str = ""  # the answer was no
    ended: bool = False
    limit_s: float | None = None
    runs_s: float = 0.0  # unless it is stopped

    @property
    def times_out(self) -> bool:
        return self.limit_s is not None and self.runs_s > self.limit_s

    def code(self, position: int) -> int:
        return self.codes[position % len(self.codes)]


@dataclass(frozen=True)
class Wait:
    """How long a request took, with everything that had to be asked again."""

    user: str
    what: str
    began_at: float
    ended_at: float


@dataclass
class Users:
    """Several users at once, each with its own client."""

    cluster: ChaosCluster
    lives: Path
    locks: Path
    open_max: int  # tasks that one user has waiting or running
    asked: list[Asked] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    trespasses: list[str] = field(default_factory=list)  # one user cancelled another's job
    refusals: list[str] = field(default_factory=list)  # an allowed request was refused
    _over: threading.Event = field(default_factory=threading.Event)
    _gone: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def begin(self, seed: int, count: int) -> None:
        self.locks.mkdir(exist_ok=True)
        for number in range(count):
            token = self.cluster.token_of(f"u{number}") if number else ""
            user = _User(self, f"u{number}", Random(seed * 1000 + number), token)
            thread = threading.Thread(target=user.work, args=(self._over, self._gone), daemon=True)
            self._threads.append(thread)
            thread.start()

    def end(self) -> None:
        """Nothing new is submitted; unanswered requests are still repeated."""
        self._over.set()

    def close(self) -> None:
        """Stop all, whatever they still wait for."""
        self._over.set()
        self._gone.set()
        for thread in self._threads:
            thread.join(30)

    @property
    def is_settled(self) -> bool:
        """No request is unanswered any more."""
        return not any(thread.is_alive() for thread in self._threads)


class _User:
    def __init__(self, users: Users, name: str, chance: Random, token: str) -> None:
        self.name = name
        self._token = token
        self._users = users
        self._chance = chance
        self._open: list[Asked] = []
        self._count = 0

    def work(self, over: threading.Event, gone: threading.Event) -> None:
        with self._users.cluster.client(token=self._token) as client:
            while not gone.wait(_LOOK_S) and (self._open or not over.is_set()):
                waiting = sum(each.tasks for each in self._open)
                if not over.is_set() and waiting < self._users.open_max:
                    self._submit(client, gone)
                if not over.is_set() and self._chance.random() < 0.1:
                    self._list(client, gone)
                if self._token and self._chance.random() < 0.02:
                    self._trespass(client)
                with suppress(PhalanxError):
                    self._look(client)

    @contextmanager
    def _waiting(self, what: str) -> Iterator[None]:
        began_at = clock()
        try:
            yield
        finally:
            self._users.waits.append(Wait(self.name, what, began_at, clock()))

    def _submit(self, client: phalanx.Client, gone: threading.Event) -> None:
        asked, fields = self._options()
        self._users.asked.append(asked)
        with self._waiting("submit"):
            self._ask_until_answered(client, gone, asked, fields)

    def _ask_until_answered(
        self, client: phalanx.Client, gone: threading.Event, asked: Asked, fields: dict[str, Any]
    ) -> None:
        while not gone.wait(0.2 if asked.troubles else 0.0):
            try:
                reply = client.submit(**fields)
            except (phalanx.errors.Unavailable, phalanx.errors.TooMany):
                asked.troubles += 1
                continue
            except PhalanxError as error:
                asked.refused, asked.ended = f"{error.reason}: {error.detail}", True
                self._users.refusals.append(f"{asked.request} was refused: {asked.refused}")
                return
            asked.job, asked.accepted_at = reply.task_ids[0], clock()
            if self._chance.random() < 0.1:
                asked.cancel_at = clock() + self._chance.uniform(0.0, 3.0)
            self._open.append(asked)
            return

    def _list(self, client: phalanx.Client, gone: threading.Event) -> None:
        with self._waiting("list"):
            while not gone.wait(0.0):
                try:
                    client.jobs(limit=_LISTED)
                except (phalanx.errors.Unavailable, phalanx.errors.TooMany):
                    continue
                except PhalanxError as error:
                    self._users.refusals.append(f"a list of {self.name} was refused: {error.reason}")
                return

    def _trespass(self, client: phalanx.Client) -> None:
        """Try to cancel another's job: it must be refused."""
        others = [
            each.job
            for each in self._users.asked[-50:]
            if each.job and not each.ended and not each.request.startswith(f"{self.name}-")
        ]
        if others:
            with suppress(PhalanxError):
                client.cancel(job := self._chance.choice(others))
                self._users.trespasses.append(f"{self.name} cancelled {job}, which is another's")

    def _look(self, client: phalanx.Client) -> None:
        """Cancel what is no longer wanted, and drop what has ended."""
        for asked in [*self._open]:
            if asked.cancel_at is not None and clock() >= asked.cancel_at:
                self._cancel(client, asked)
            try:
                asked.ended = client.job(asked.job).status in FINAL
            except NotFound:
                continue  # a standby that lags, or a job that was lost: the verdict decides
            if asked.ended:
                self._open.remove(asked)

    def _cancel(self, client: phalanx.Client, asked: Asked) -> None:
        """Repeat it until it was answered."""
        if not asked.is_cancelled:
            asked.is_cancelled, asked.cancel_began_at = True, clock()
        try:
            asked.cancelled += client.cancel(asked.job).cancelled
        except (phalanx.errors.Unavailable, phalanx.errors.TooMany):
            return  # it may have arrived; repeat it
        except (phalanx.errors.NotFound, phalanx.errors.Conflict):
            pass  # a standby that lags, or it has ended already
        except PhalanxError as error:
            self._users.refusals.append(f"{self.name}: cancel of {asked.job}: {error}")
        asked.cancel_at = None
        self._users.waits.append(Wait(self.name, "cancel", asked.cancel_began_at, clock()))

    def _options(self) -> tuple[Asked, dict[str, Any]]:
        chance = self._chance
        self._count += 1
        request = f"{self.name}-{self._count}"
        kind = chance.choices(("single", "array", "gang"), (5, 3, 3))[0]
        tasks = {"single": 1, "array": chance.randint(2, 8), "gang": chance.randint(2, 6)}[kind]
        codes = self._codes(kind, tasks)
        asked = Asked(request, kind, tasks, codes)
        asked.runs_s, asked.limit_s = self._times(kind)
        fields: dict[str, Any] = {
            "command": self._command(asked),
            "name": request,
            "request_id": request,
            "cores": chance.choice((1, 1, 1, 2)),
            "priority": chance.choice((0, 0, 0, 5)),  # so that some are evicted for others
            "gpus": chance.choice((0, 1, 1, 2)) if kind != "array" else chance.choice((0, 0, 1)),
            "max_retries": chance.choice((0, 0, 1)) if kind != "gang" else 0,
        }
        if kind == "array":
            lasts_s = tasks * min(asked.runs_s, asked.limit_s or asked.runs_s)  # one after another
            at_once = chance.choice(("", "", "%2"))
            fields["array"] = f"0-{tasks - 1}" + (at_once if lasts_s <= _IN_A_ROW_S else "")
        if kind == "gang":
            fields["tasks"] = tasks
        if asked.limit_s is not None:
            fields["time_limit"] = asked.limit_s
        return asked, fields

    def _times(self, kind: str) -> tuple[float, float | None]:
        """How long it runs, and its limit: for some too little, for some far more than it needs."""
        runs_s = self._chance.choice(_SECONDS) * self._chance.uniform(0.7, 1.3)
        drawn = self._chance.random() if kind != "gang" else 1.0
        if drawn < 0.12:
            return _TOO_LONG_S, round(self._chance.uniform(1.5, 6.0), 2)
        return runs_s, _ENOUGH_S if drawn < 0.3 else None

    def _codes(self, kind: str, tasks: int) -> tuple[int, ...]:
        if self._chance.random() < 0.7:
            return (0,)
        if kind == "gang":
            return tuple(self._chance.sample([self._chance.randint(1, 99), *[0] * (tasks - 1)], tasks))
        return tuple(self._chance.choice((0, self._chance.randint(1, 99))) for _ in range(tasks))

    def _command(self, asked: Asked) -> list[str]:
        words = [sys.executable, "-I", "-S", life.__file__, str(self._users.lives), str(self._users.locks)]
        return [*words, str(CORES), f"{asked.runs_s:.2f}", *map(str, asked.codes)]
