"""A row of the route table, and what every route is given to work with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from phalanx.api.schema.documents import BODY_BYTES_MAX, Nothing
from phalanx.api.schema.queries import NoQuery
from phalanx.api.server.audit import Audit
from phalanx.api.server.auth import Accepts
from phalanx.api.server.commands import Commands
from phalanx.api.server.concurrency import ConcurrencyLimit
from phalanx.api.server.readiness import Readiness
from phalanx.api.server.request import HttpRequest
from phalanx.api.server.response import Response, StreamedResponse
from phalanx.api.server.roles import Permission
from phalanx.api.server.stream_limit import StreamLimit
from phalanx.api.server.time_slices import TimeSlices
from phalanx.clock import SystemClock


class ServerLimits(Struct, frozen=True):
    """How much one coordinator takes on at once."""

    body_bytes: int = BODY_BYTES_MAX
    streams: int = 256  # watches and log readers
    waits: int = 1024  # long polls
    reads: int = 1024  # questions that are being answered
    submits: int = 64  # carried out at once; a turn takes them together
    submits_waiting: int = 4096  # for a place among them,
    submit_within_s: float = 1.0  # and not longer than that
    large_bytes: int = 32 * 1024  # a body above this, or of unknown length, is a large one
    large_submits: int = 2  # of these so many at once, and plans as well,
    large_rest: float = 3.0  # each place resting so many times as long as it was used,
    large_within_s: float = 10.0  # and they wait longer for one
    large_bodies: int = 256  # held in memory at once, from their first byte until they are carried out
    beat_s: float = 15.0  # between two signs of life of a quiet stream; its token is checked again then
    settle_s: float = 0.05  # how long a watch may take to refuse before its answer begins
    ready_s: float = 5.0


class Service:
    """What the routes work with: the commands behind them, and the limits in front."""

    def __init__(
        self, commands: Commands, tokens: Accepts, limits: ServerLimits, openapi: bytes, audit: Audit
    ) -> None:
        self.commands = commands
        self.tokens = tokens
        self.limits = limits
        self.openapi = openapi
        self.audit = audit
        self.streams = StreamLimit(limits.streams, "places for watches and log readers")
        self.waits = StreamLimit(limits.waits, "places for waiting")
        self.reads = StreamLimit(limits.reads, "places for questions")
        self.slices = TimeSlices(SystemClock())
        self.readiness = Readiness(commands.ready, limits.ready_s)
        self.limit = ConcurrencyLimit(limits.submits, limits.submits_waiting, limits.submit_within_s)
        self.large_bodies = StreamLimit(limits.large_bodies, "places for large bodies")
        self.large = ConcurrencyLimit(
            limits.large_submits, limits.submits_waiting // 16, limits.large_within_s, limits.large_rest
        )

    async def id_named(self, http_request: HttpRequest, name: str, *, own: bool = False) -> str:
        """The id behind a name of Kubernetes: the visitor's own, or of anybody for those who may look into all jobs."""
        of_all = not own and http_request.identity.scope("inspect") == "all"
        return await self.commands.named(name, http_request.user, of_all=of_all)


Handler = Callable[[Service, HttpRequest], Awaitable[Response | StreamedResponse[Any]]]


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
    def is_heavy(self) -> bool:
        """Whether it looks at everything that waits, however little is asked."""
        return self.path == "/v1/plan"

    @property
    def is_change(self) -> bool:
        """Whether it changes anything, and so is written down with who did it."""
        return self.method != "GET" and self.permission not in ("open", "read")
