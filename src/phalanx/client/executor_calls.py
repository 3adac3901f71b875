"""Calls of Python functions, as values of the API: those of a client that posts them, and those of its workers.

Both ask a coordinator that may be away for a while: `ask_patiently` is how.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

import msgspec

from phalanx.api.schema.calls import (
    CALLS_FULL,
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
from phalanx.clock import Clock, SystemClock
from phalanx.errors import TooMany, Unavailable

PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0)  # between two tries; the last one from then on
AWAY_S_MAX = 300.0  # for the coordinator to come back

T = TypeVar("T")


def python_version() -> str:
    """What has to be the same at both ends: functions are pickled as the bytecode of one version."""
    return f"{sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]}"


def ask(client: Client, call: Call[T]) -> T:
    """Carry a call that is no method of clients."""
    return client._ask(call)  # noqa: SLF001 - of this package


def ask_patiently(
    client: Client, call: Call[T], is_over_after: Callable[[float], bool], clock: Clock | None = None
) -> T | None:
    """The answer of a coordinator that may be away or busy for a while; after 300 s its refusal is raised.

    `is_over_after` waits so many seconds, and less if there is no use for an answer any more: then it returns True,
    and this returns None. Calls for which there is no room (TooManyCalls) are refused at once: the caller has to wait.
    """
    clock = clock or SystemClock()
    until, tries = clock.monotonic() + AWAY_S_MAX, 0
    while True:
        try:
            return ask(client, call)
        except (Unavailable, TooMany) as error:
            if error.reason == CALLS_FULL or clock.monotonic() > until:
                raise
        if is_over_after(PAUSES_S[min(tries, len(PAUSES_S) - 1)]):
            return None
        tries += 1


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
