"""Calls as values: each question to the API with its method, path, words and how to read the answer.

No I/O happens here. A client takes a call, gives it to an exchange, and reads the answer with it, so the sync
and the async client differ only in how they wait.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Generic, Literal, TypedDict, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from phalanx.api import sse
from phalanx.api.commands import Stream
from phalanx.api.problems import read_problem
from phalanx.api.schema import (
    CancelReply,
    ClusterView,
    DrainRequest,
    JobView,
    NodeView,
    Page,
    StatusWord,
    StoryLine,
    SubmitReply,
    SubmitRequest,
    TaskView,
    WhyReply,
)
from phalanx.errors import Unavailable

T = TypeVar("T")
Noun = Literal["jobs", "tasks", "nodes"]

TIMEOUT_S = 30.0
WAIT_S = 30.0  # of one long poll; a wait that takes longer asks again
QUIET_S_MAX = 60.0  # a watch shows a sign of life every 15 s; silence four times as long is a dead connection
_TASK_ID = re.compile(r"[0-9a-z]+\.[0-9]+")
_FINAL = ("Completed", "Failed", "Cancelled")


class SubmitFields(TypedDict, total=False):
    """The fields of `SubmitRequest`, for those who would rather write `submit(command=[…], gpus=2)`."""

    command: list[str]
    shell: str | None
    kind: Literal["command", "vps"]
    targets: list[str]
    required_gpus: list[list[int]] | None
    cores: int
    memory: int | str
    gpus: int
    gpu_type: str | None
    gpu_memory: int | str
    priority: int
    queue: str
    array: str | None
    name: str
    env: dict[str, str]
    cwd: str | None
    time_limit: float | str | None
    grace: float | str | None
    max_retries: int | None
    max_attempts: int | None
    no_queue: bool
    allow_infeasible: bool
    request_id: str | None


class Call(Struct, Generic[T], frozen=True, kw_only=True):
    """One question. `answer` is the type to read the answer as, None for a stream of bytes."""

    method: Literal["GET", "POST"]
    path: str
    answer: Any = None
    query: dict[str, str] = {}
    body: bytes | None = None
    headers: dict[str, str] = {}
    repeatable: bool = False  # asking twice does no harm, so a lost answer may be asked for again
    timeout_s: float | None = TIMEOUT_S

    @property
    def target(self) -> str:
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    @property
    def streams(self) -> bool:
        return self.answer is None

    def headers_with(self, token: str) -> dict[str, str]:
        """All headers of the request but Host and Content-Length, which the exchange knows."""
        headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"} | self.headers
        return headers if self.body is None else headers | {"Content-Type": "application/json"}

    def read(self, status: int, headers: Mapping[str, str], body: bytes) -> T:
        """The answer, or the error it tells of."""
        if status >= 400:
            raise read_problem(status, body, headers.get("retry-after"))
        try:
            value: T = _decoder(self.answer).decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise Unavailable(f"the answer to {self.path} is not one of phalanx: {error}") from None
        return value


@cache
def _decoder(answer: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(answer)


def submit(request: SubmitRequest | None, fields: SubmitFields) -> Call[SubmitReply]:
    """A submission always carries a request id, so that a lost answer can be asked for again."""
    if request is not None and fields:
        raise TypeError("give a SubmitRequest or its fields, not both")
    request = SubmitRequest(**fields) if request is None else request
    if request.request_id is None:
        request = msgspec.structs.replace(request, request_id=os.urandom(16).hex())
    body = msgspec.json.encode(request)
    return Call(method="POST", path="/v1/jobs", answer=SubmitReply, body=body, repeatable=True)


def cancel(id: str) -> Call[CancelReply]:
    return Call(method="POST", path=_path(_noun(id), id, "cancel"), answer=CancelReply)


def pause(id: str) -> Call[TaskView]:
    return Call(method="POST", path=_path("tasks", id, "pause"), answer=TaskView)


def resume(id: str) -> Call[TaskView]:
    return Call(method="POST", path=_path("tasks", id, "resume"), answer=TaskView)


def jobs(
    status: StatusWord | None, queue: str | None, name: str | None, cursor: str | None, limit: int
) -> Call[Page[JobView]]:
    query = _query(status=status, queue=queue, name=name, cursor=cursor, limit=limit)
    return _get("/v1/jobs", Page[JobView], query)


def job(id: str) -> Call[JobView]:
    return _get(_path("jobs", id), JobView)


def task(id: str) -> Call[TaskView]:
    return _get(_path("tasks", id), TaskView)


def tasks(id: str, status: StatusWord | None, cursor: str | None, limit: int) -> Call[Page[TaskView]]:
    query = _query(status=status, cursor=cursor, limit=limit)
    return _get(_path("jobs", id, "tasks"), Page[TaskView], query)


def wait(id: str, timeout_s: float) -> Call[JobView | TaskView]:
    """One long poll. Its answer may take as long as asked, and a little for the way."""
    noun = _noun(id)
    return Call(
        method="GET",
        path=_path(noun, id, "wait"),
        answer=TaskView if noun == "tasks" else JobView,
        query=_query(timeout_s=timeout_s),
        repeatable=True,
        timeout_s=timeout_s + TIMEOUT_S,
    )


def has_ended(view: JobView | TaskView) -> bool:
    return view.status in _FINAL


def why(id: str) -> Call[WhyReply]:
    return _get(_path(_noun(id), id, "why"), WhyReply)


def story(id: str, of: Noun | None, cursor: str | None, limit: int) -> Call[Page[StoryLine]]:
    return _get(_path(of or _noun(id), id, "story"), Page[StoryLine], _query(cursor=cursor, limit=limit))


def nodes() -> Call[list[NodeView]]:
    return _get("/v1/nodes", list[NodeView])


def node(name: str) -> Call[NodeView]:
    return _get(_path("nodes", name), NodeView)


def drain(name: str, reason: str) -> Call[NodeView]:
    body = msgspec.json.encode(DrainRequest(reason))
    return Call(method="POST", path=_path("nodes", name, "drain"), answer=NodeView, body=body)


def undrain(name: str) -> Call[NodeView]:
    return Call(method="POST", path=_path("nodes", name, "resume"), answer=NodeView)


def cluster() -> Call[ClusterView]:
    return _get("/v1/cluster", ClusterView)


def ready() -> Call[Any]:
    return _get("/readyz", dict[str, str])


def logs(
    id: str, stream: Stream, attempt: int | None, offset: int | None, lines: int | None, *, follow: bool
) -> Call[None]:
    """A stream. One that follows may be silent for hours, so no time limit is set for it."""
    query = _query(stream=stream, attempt=attempt, offset=offset, lines=lines)
    if follow:
        query["follow"] = "true"
    timeout_s = None if follow else TIMEOUT_S
    return Call(method="GET", path=_path("tasks", id, "logs"), query=query, timeout_s=timeout_s)


def watch(after: int | None, job: str | None) -> Call[None]:
    headers = {"Accept": sse.MEDIA_TYPE}
    if after is not None:
        headers["Last-Event-ID"] = str(after)
    query = _query(job=job)
    return Call(method="GET", path="/v1/events", query=query, headers=headers, timeout_s=QUIET_S_MAX)


def _get(path: str, answer: Any, query: dict[str, str] | None = None) -> Call[Any]:
    return Call(method="GET", path=path, answer=answer, query=query or {}, repeatable=True)


def _path(noun: Noun, id: str, verb: str = "") -> str:
    path = f"/v1/{noun}/{quote(id, safe='')}"
    return f"{path}/{verb}" if verb else path


def _noun(id: str) -> Noun:
    """What is named: the tasks of an array have a dot and their index in their id."""
    return "tasks" if _TASK_ID.fullmatch(id) else "jobs"


def _query(**words: str | float | None) -> dict[str, str]:
    return {name: str(word) for name, word in words.items() if word is not None}
