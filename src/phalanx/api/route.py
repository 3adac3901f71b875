"""A row of the route table, and what every route is given to work with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from phalanx.api.audit import Audit
from phalanx.api.auth import Accepts
from phalanx.api.commands import Commands
from phalanx.api.documents import BODY_BYTES_MAX, Nothing
from phalanx.api.queries import NoQuery
from phalanx.api.readiness import Readiness
from phalanx.api.reply import Reply, Streamed
from phalanx.api.roles import Permission
from phalanx.api.turnstile import Turnstile
from phalanx.api.visit import Visit
from phalanx.errors import TooMany


class Limits(Struct, frozen=True):
    """How much one coordinator takes on at once."""

    body_bytes: int = BODY_BYTES_MAX
    streams: int = 256  # watches and log readers
    waits: int = 1024  # long polls
    submits: int = 64  # carried out at once; a turn takes them together
    submits_waiting: int = 4096  # for a place among them,
    submit_within_s: float = 1.0  # and not longer than that
    beat_s: float = 15.0  # between two signs of life of a quiet stream; its token is checked again then
    settle_s: float = 0.05  # how long a watch may take to refuse before its answer begins
    ready_s: float = 5.0


class Slots:
    """A number of places; who comes when all are taken is told to come again."""

    def __init__(self, most: int, noun: str) -> None:
        self.most = most
        self.noun = noun
        self.used = 0

    @contextmanager
    def taken(self) -> Iterator[None]:
        if self.used >= self.most:
            raise TooMany(f"all {self.most} {self.noun} are taken, try again", retry_after_s=1)
        self.used += 1
        try:
            yield
        finally:
            self.used -= 1


class Service:
    """What the routes work with: the commands behind them, and the limits in front."""

    def __init__(
        self, commands: Commands, tokens: Accepts, limits: Limits, openapi: bytes, audit: Audit
    ) -> None:
        self.commands = commands
        self.tokens = tokens
        self.limits = limits
        self.openapi = openapi
        self.audit = audit
        self.streams = Slots(limits.streams, "places for watches and log readers")
        self.waits = Slots(limits.waits, "places for waiting")
        self.readiness = Readiness(commands.ready, limits.ready_s)
        self.turnstile = Turnstile(limits.submits, limits.submits_waiting, limits.submit_within_s)


Handler = Callable[[Service, Visit], Awaitable[Reply | Streamed[Any]]]


class Route(Struct, frozen=True, kw_only=True):
    """One row: what is asked, who may ask, who answers; the OpenAPI document is made from it as well."""

    method: str
    path: str
    permission: Permission
    handler: Handler
    summary: str
    answer: Any  # the type of the answer, or None for a stream of bytes
    status: int = 200
    query: type[Struct] = NoQuery
    body: type[Struct] = Nothing
    header: str = ""  # a request header that this route reads
    media: str = "application/json"
    lasting: bool = False  # may take long, so it is cancelled when the client hangs up

    @property
    def is_about_a_job(self) -> bool:
        """Whether the id in the path is that of a job or task, which belongs to somebody."""
        return self.path.startswith(("/v1/jobs/{id}", "/v1/tasks/{id}"))

    @property
    def is_costly(self) -> bool:
        """Whether only so many of them are carried out at once."""
        return self.method == "POST" and self.path in ("/v1/jobs", "/v1/apply", "/v1/plan")

    @property
    def is_change(self) -> bool:
        """Whether it changes anything, and so is written down with who did it."""
        return self.method != "GET" and self.permission not in ("open", "read")
