"""Calls as values: each question to the API with its method, path, words and how to read the answer.

No I/O happens here. A client takes a call, gives it to an exchange, and reads the answer with it, so the sync
and the async client differ only in how they wait.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct

from phalanx.api.schema import sse
from phalanx.api.schema.apply import ApplyReply, ApplyRequest, DraftView, PlanReply, PlanRequest, TopologyView
from phalanx.api.schema.begin import local_begin
from phalanx.api.schema.cluster import (
    ClusterView,
    DrainRequest,
    ElasticRequest,
    LoseRequest,
    NodeView,
    RemovedNode,
    TopologyReply,
    TopologySpec,
)
from phalanx.api.schema.documents import decoder, read_problem
from phalanx.api.schema.fields import check_name
from phalanx.api.schema.groupspec import GatherRules, parse_gather_rules
from phalanx.api.schema.jobs import (
    CancelReply,
    EvictReply,
    JobFilters,
    JobReason,
    JobView,
    NamedView,
    Page,
    StatusWord,
    StoryLine,
    TaskView,
    WhyReply,
)
from phalanx.api.schema.jobspec import JobSpec
from phalanx.api.schema.queries import Follow, Stream
from phalanx.api.schema.queues import QueueView, QuotaSpec
from phalanx.api.schema.short_forms import grouped
from phalanx.api.schema.submission import SubmitReply, SubmitRequest
from phalanx.api.schema.submit_fields import GangFields, SubmitFields, Word
from phalanx.client.ids import AnyId, id_of
from phalanx.client.plain_values import plain_value
from phalanx.client.surroundings import with_surroundings
from phalanx.clock import local_now
from phalanx.errors import Unavailable

T = TypeVar("T")
Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Noun = Literal[
    "jobs", "tasks", "nodes", "queues", "tokens", "workflows", "reservations", "addresses", "logins"
]
Spec = JobSpec | Mapping[str, Any]  # a job file's content, as a struct or as it was parsed

TIMEOUT_S = 30.0
SUBMIT = "/v1/jobs"
PLAN = "/v1/plan"  # a question, though it is sent as a change would be
WAIT_S = 10.0  # of one long poll; a wait that takes longer asks again, and so notices a leader that is frozen
QUIET_S_MAX = 60.0  # a watch shows a sign of life every 15 s; silence four times as long is a dead connection
_TASK_ID = re.compile(r"[0-9A-Za-z._-]+\.[0-9]+")
FINAL = ("Completed", "Failed", "Cancelled")


class Call(Struct, Generic[T], frozen=True, kw_only=True):
    """One question. `answer` is the type to read the answer as, None for a stream of bytes."""

    method: Method
    path: str
    answer: Any = None
    query: dict[str, str] = {}
    body: bytes | None = None
    headers: dict[str, str] = {}
    repeatable: bool = False  # asking twice does no harm, so a lost answer may be asked for again
    anywhere: bool = False  # a standby's answer will do while nobody leads
    timeout_s: float | None = TIMEOUT_S
    request_id: str = ""  # by which the coordinator knows a repetition

    @property
    def changes(self) -> bool:
        return self.method != "GET" and self.path != PLAN

    @property
    def target(self) -> str:
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path

    @property
    def streams(self) -> bool:
        return self.answer is None

    def headers_with(self, token: str, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """All headers of the request but Host and Content-Length, which the exchange knows."""
        headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"} | self.headers
        headers |= more or {}
        return headers if self.body is None else headers | {"Content-Type": "application/json"}

    def read(self, status: int, headers: Mapping[str, str], body: bytes) -> T:
        """The answer, or the error it tells of."""
        if status >= 400:
            raise read_problem(status, body, headers.get("retry-after"))
        try:
            value: T = decoder(self.answer).decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Unavailable(f"the answer to {self.path} is not one of phalanx: {error}") from None
        return value


def submit(request: SubmitRequest | None, fields: SubmitFields) -> Call[SubmitReply]:
    """A submission always carries a request id, so that a lost answer can be asked for again. It runs in the caller's
    folder and environment unless it says otherwise or has an image, as a command typed there would.
    """
    export = fields.pop("export", None)
    if request is not None and fields:
        raise TypeError("give a SubmitRequest or its fields, not both")
    request = with_surroundings(SubmitRequest(**fields) if request is None else request, export)  # type: ignore[arg-type, misc]
    if isinstance(request.begin, str):
        request = msgspec.structs.replace(request, begin=local_begin(request.begin, local_now()))
    if request.request_id is None:
        request = msgspec.structs.replace(request, request_id=new_request_id())
    return Call(
        method="POST",
        path=SUBMIT,
        answer=SubmitReply,
        body=_encoded(request),
        repeatable=True,
        request_id=request.request_id or "",
    )


def _encoded(request: SubmitRequest) -> bytes:
    """The body; TypeError for a value that JSON does not have, with its field."""
    try:
        return msgspec.json.encode(request)
    except TypeError:
        for field in request.__struct_fields__:
            _check_value(field, getattr(request, field))
        raise


def _check_value(field: str, value: object) -> None:
    try:
        msgspec.json.encode(value)
    except TypeError:
        raise TypeError(
            f"submit(): {field} = {value!r:.80} cannot be sent: it is not what JSON has"
        ) from None


def apply(request: ApplyRequest | Spec | Sequence[Spec]) -> Call[ApplyReply]:
    """A whole request, or job files by their content. The coordinator says what is wrong with them."""
    if not isinstance(request, ApplyRequest):
        specs = _specs(request)
        request_id = new_request_id()
        whole: Any = {"specs": specs, "request_id": request_id}
    else:
        request_id = request.request_id or new_request_id()
        whole = msgspec.structs.replace(request, request_id=request_id)
    return Call(
        method="POST",
        path="/v1/apply",
        answer=ApplyReply,
        body=msgspec.json.encode(whole),
        repeatable=True,
        request_id=request_id,
    )


def _specs(given: Spec | Sequence[Spec]) -> list[Spec]:
    """Job files by their content, as the coordinator reads them."""
    if isinstance(given, str | os.PathLike):
        raise TypeError(
            f"{given!r:.80} is not the content of a job file: read it, such as with yaml.safe_load, and give the dict"
            " (`phalanx apply -f` reads files)"
        )
    each = [given] if isinstance(given, JobSpec | Mapping) else given
    return [
        spec if isinstance(spec, JobSpec) else grouped(spec, f"specs[{number}]")
        for number, spec in enumerate(each)
    ]


def gang(command: Sequence[Word], tasks: int, gather: GatherRules, fields: GangFields) -> Call[SubmitReply]:
    """A submission whose tasks start together. The coordinator refuses a command that is one text."""
    more: SubmitFields = {
        "command": plain_value("command", command),
        "tasks": tasks,
        "gather": parse_gather_rules(gather),
    }
    return submit(None, {**fields, **more})


def cancel(id: AnyId) -> Call[CancelReply]:
    return Call(method="POST", path=path_of(noun_of(id), id, "cancel"), answer=CancelReply)


def evict(id: AnyId) -> Call[EvictReply]:
    return Call(method="POST", path=path_of(noun_of(id), id, "evict"), answer=EvictReply)


def pause(id: AnyId) -> Call[TaskView]:
    return Call(method="POST", path=path_of("tasks", id, "pause"), answer=TaskView)


def resume(id: AnyId) -> Call[TaskView]:
    return Call(method="POST", path=path_of("tasks", id, "resume"), answer=TaskView)


def jobs(filters: JobFilters, cursor: str | None, limit: int) -> Call[Page[JobView]]:
    given: dict[str, Any] = {**filters, "mine": "true" if filters.get("mine") else None}
    return get("/v1/jobs", Page[JobView], query_of(**given, cursor=cursor, limit=limit))


def named(name: str, *, own: bool) -> Call[NamedView]:
    query = query_of(own="true" if own else None)
    return get(f"/v1/names/{quote(name, safe='')}", NamedView, query)


def draft(id: AnyId) -> Call[DraftView]:
    return get(path_of("jobs", id, "draft"), DraftView)


def job(id: AnyId) -> Call[JobView]:
    return get(path_of("jobs", id), JobView)


def task(id: AnyId) -> Call[TaskView]:
    return get(path_of("tasks", id), TaskView)


def tasks(
    id: AnyId, status: StatusWord | None, selector: str | None, cursor: str | None, limit: int
) -> Call[Page[TaskView]]:
    query = query_of(status=status, selector=selector, cursor=cursor, limit=limit)
    return get(path_of("jobs", id, "tasks"), Page[TaskView], query)


def wait(id: AnyId, timeout_s: float) -> Call[JobView | TaskView]:
    """One long poll. Its answer may take as long as asked, and a little for the way."""
    noun = noun_of(id)
    return Call(
        method="GET",
        path=path_of(noun, id, "wait"),
        answer=TaskView if noun == "tasks" else JobView,
        query=query_of(timeout_s=timeout_s),
        repeatable=True,
        timeout_s=timeout_s + TIMEOUT_S,
    )


def has_ended(view: JobView | TaskView) -> bool:
    return view.status in FINAL


def why(id: AnyId) -> Call[WhyReply]:
    return get(path_of(noun_of(id), id, "why"), WhyReply)


def reasons(ids: Iterable[AnyId]) -> Call[list[JobReason]]:
    return get("/v1/reasons", list[JobReason], query_of(jobs=",".join(map(id_of, ids))))


def story(id: AnyId, of: Noun | None, cursor: str | None, limit: int) -> Call[Page[StoryLine]]:
    return get(path_of(of or noun_of(id), id, "story"), Page[StoryLine], query_of(cursor=cursor, limit=limit))


def nodes() -> Call[list[NodeView]]:
    return get("/v1/nodes", list[NodeView])


def node(name: str) -> Call[NodeView]:
    return get(path_of("nodes", name), NodeView)


def drain(name: str, reason: str = "", *, evict: bool = False) -> Call[NodeView]:
    body = msgspec.json.encode(DrainRequest(reason, evict))
    return Call(method="POST", path=path_of("nodes", name, "drain"), answer=NodeView, body=body)


def undrain(name: str) -> Call[NodeView]:
    return Call(method="POST", path=path_of("nodes", name, "resume"), answer=NodeView)


def set_elastic(name: str, *, enabled: bool, reason: str = "") -> Call[NodeView]:
    body = msgspec.json.encode(ElasticRequest(enabled, reason))
    return Call(method="POST", path=path_of("nodes", name, "elastic"), answer=NodeView, body=body)


def lose(name: str, reason: str) -> Call[NodeView]:
    body = msgspec.json.encode(LoseRequest(reason))
    return Call(method="POST", path=path_of("nodes", name, "lose"), answer=NodeView, body=body)


def remove_node(name: str) -> Call[RemovedNode]:
    return Call(method="POST", path=path_of("nodes", name, "remove"), answer=RemovedNode)


def queues() -> Call[list[QueueView]]:
    return get("/v1/queues", list[QueueView])


def queue(name: str) -> Call[QueueView]:
    check_name("queue", name)
    return get(path_of("queues", name), QueueView)


def set_quota(name: str, quota: QuotaSpec | None) -> Call[QueueView]:
    check_name("queue", name)
    path = path_of("queues", name)
    if quota is None:
        return Call(method="DELETE", path=path, answer=QueueView, repeatable=True)
    body = msgspec.json.encode(quota)
    return Call(method="PUT", path=path, answer=QueueView, body=body, repeatable=True)


def set_topology(topology: TopologySpec | Mapping[str, Any]) -> Call[TopologyReply]:
    body = msgspec.json.encode(topology)
    return Call(method="PUT", path="/v1/topology", answer=TopologyReply, body=body, repeatable=True)


def plan(request: PlanRequest | SubmitRequest | Spec | Sequence[Spec]) -> Call[PlanReply]:
    """A whole question, a submission, or job files by their content."""
    whole: Any = request
    if isinstance(request, SubmitRequest):
        whole = PlanRequest(submit=request)
    elif not isinstance(request, PlanRequest):
        whole = {"specs": _specs(request)}
    body = msgspec.json.encode(whole)
    return Call(method="POST", path=PLAN, answer=PlanReply, body=body, repeatable=True)


def topology() -> Call[TopologyView]:
    return get("/v1/topology", TopologyView)


def cluster() -> Call[ClusterView]:
    return get("/v1/cluster", ClusterView)


def ready() -> Call[Any]:
    return get("/readyz", dict[str, str])


def logs(
    id: str, stream: Stream, attempt: int | None, offset: int | None, lines: int | None, *, follow: Follow
) -> Call[None]:
    """A stream. One that follows may be silent for hours, so no time limit is set for it."""
    query = query_of(stream=stream, attempt=attempt, offset=offset, lines=lines) | {"split": "true"}
    if follow:
        query |= {"follow": "true"} | ({"hold": "true"} if follow == "hold" else {})
    timeout_s = None if follow else TIMEOUT_S
    return Call(method="GET", path=path_of("tasks", id, "logs"), query=query, timeout_s=timeout_s)


def watch(after: int | None, job: AnyId | None) -> Call[None]:
    headers = {"Accept": sse.MEDIA_TYPE}
    if after is not None:
        headers["Last-Event-ID"] = str(after)
    query = query_of(job=None if job is None else id_of(job))
    return Call(method="GET", path="/v1/events", query=query, headers=headers, timeout_s=QUIET_S_MAX)


def new_request_id() -> str:
    return os.urandom(16).hex()


def get(path: str, answer: Any, query: dict[str, str] | None = None) -> Call[Any]:
    return Call(method="GET", path=path, answer=answer, query=query or {}, repeatable=True, anywhere=True)


def path_of(noun: Noun, id: AnyId, verb: str = "") -> str:
    path = f"/v1/{noun}/{quote(id_of(id), safe='')}"
    return f"{path}/{verb}" if verb else path


def is_lasting(id: AnyId) -> bool:
    """Whether this names the same job for ever: an id, the beginning of one, or a number."""
    return (text := id_of(id))[:1].isdigit() and not {"/", "-", "_"} & {*text}


def noun_of(id: AnyId) -> Noun:
    """What is named: the tasks of an array have a dot and their index in their id."""
    return "tasks" if _TASK_ID.fullmatch(id_of(id)) else "jobs"


def query_of(**words: str | float | None) -> dict[str, str]:
    return {name: str(word) for name, word in words.items() if word is not None}
