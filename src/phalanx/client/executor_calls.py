"""Calls of Python functions, as values of the API: those of a client that posts them, and those of its workers."""

from __future__ import annotations

import sys
from typing import TypeVar

import msgspec

from phalanx.api.schema.calls import (
    CallsReply,
    CallsRequest,
    GiveReply,
    GiveRequest,
    ResultsReply,
    TakeReply,
    TakeRequest,
)
from phalanx.client.calls import TIMEOUT_S, Call, query_of
from phalanx.client.client import Client

T = TypeVar("T")


def python_version() -> str:
    """What has to be the same at both ends: functions are pickled as the bytecode of one version."""
    return f"{sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]}"


def ask(client: Client, call: Call[T]) -> T:
    """Carry a call that is no method of clients."""
    return client._ask(call)  # noqa: SLF001 - of this package


def post(name: str, request: CallsRequest) -> Call[CallsReply]:
    path = f"/v1/executors/{name}/calls"
    body = msgspec.json.encode(request)
    # Calls have numbers, so those that came twice are taken once.
    return Call(method="POST", path=path, answer=CallsReply, body=body, repeatable=True)


def results(
    name: str, queue: str, after: int, timeout_s: float, workers: int | None = None
) -> Call[ResultsReply]:
    query = query_of(queue=queue, after=after, timeout_s=timeout_s, workers=workers)
    path = f"/v1/executors/{name}/results"
    return Call(
        method="GET",
        path=path,
        answer=ResultsReply,
        query=query,
        repeatable=True,
        timeout_s=TIMEOUT_S + timeout_s,
    )


def close(name: str) -> Call[CallsReply]:
    return Call(method="POST", path=f"/v1/executors/{name}/close", answer=CallsReply, repeatable=True)


def take(job: str, request: TakeRequest) -> Call[TakeReply]:
    return Call(
        method="POST",
        path=f"/v1/jobs/{job}/take",
        answer=TakeReply,
        body=msgspec.json.encode(request),
        repeatable=True,
        timeout_s=TIMEOUT_S + request.timeout_s,
    )


def give(job: str, request: GiveRequest) -> Call[GiveReply]:
    path = f"/v1/jobs/{job}/give"
    return Call(
        method="POST", path=path, answer=GiveReply, body=msgspec.json.encode(request), repeatable=True
    )
