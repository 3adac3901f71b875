"""Our errors as gRPC statuses, and back: the status for every client, the problem document for those that read it.

The document of REST travels in the trailing metadata (`PROBLEM`), so that a client raises the very error that the
coordinator raised. A runner that is refused gets a message first, and the status with the same meaning.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from grpc import StatusCode  # type: ignore[import-untyped]

PROBLEM = "phalanx-problem-bin"
DETAIL_MAX = 1000  # characters of a status; the document has all of them
METADATA_MAX = 16 * 1024
_BY_TYPE = {
    "Busy": StatusCode.RESOURCE_EXHAUSTED,
    "NoRoom": StatusCode.RESOURCE_EXHAUSTED,
    "NeverFits": StatusCode.FAILED_PRECONDITION,
}
_BY_STATUS = {
    400: StatusCode.INVALID_ARGUMENT,
    401: StatusCode.UNAUTHENTICATED,
    403: StatusCode.PERMISSION_DENIED,
    404: StatusCode.NOT_FOUND,
    405: StatusCode.UNIMPLEMENTED,
    409: StatusCode.FAILED_PRECONDITION,
    410: StatusCode.OUT_OF_RANGE,
    413: StatusCode.RESOURCE_EXHAUSTED,
    415: StatusCode.INVALID_ARGUMENT,
    422: StatusCode.INVALID_ARGUMENT,
    429: StatusCode.RESOURCE_EXHAUSTED,
    503: StatusCode.UNAVAILABLE,
}
_OF_RUNNERS = {
    "Unauthorized": StatusCode.UNAUTHENTICATED,
    "JoinRefused": StatusCode.PERMISSION_DENIED,
    "VersionMismatch": StatusCode.FAILED_PRECONDITION,
    "BadName": StatusCode.INVALID_ARGUMENT,
    "BadHello": StatusCode.INVALID_ARGUMENT,
    "NotUnderstood": StatusCode.INVALID_ARGUMENT,
    "StaleEpoch": StatusCode.ABORTED,
    "TooLarge": StatusCode.RESOURCE_EXHAUSTED,
    "TooMany": StatusCode.RESOURCE_EXHAUSTED,
}
_STATUS_OF = {  # a status without a document: not a coordinator answered, or nothing did
    StatusCode.INVALID_ARGUMENT: 400,
    StatusCode.UNAUTHENTICATED: 401,
    StatusCode.PERMISSION_DENIED: 403,
    StatusCode.NOT_FOUND: 404,
    StatusCode.UNIMPLEMENTED: 405,
    StatusCode.RESOURCE_EXHAUSTED: 429,
    StatusCode.INTERNAL: 500,
}


def status_of_problem(status: int, body: bytes) -> tuple[StatusCode, str]:
    """The gRPC status of an answer of REST, and its sentence."""
    try:
        problem: dict[str, Any] = json.loads(body)
    except ValueError:
        return _BY_STATUS.get(status, StatusCode.INTERNAL), f"the coordinator answered {status}"
    kind = str(problem.get("type", "")).rpartition(":")[2]
    detail, hint = str(problem.get("detail", "")), str(problem.get("hint", ""))
    said = f"{detail} ({hint})" if hint else detail
    return _BY_TYPE.get(kind) or _BY_STATUS.get(status, StatusCode.INTERNAL), said[:DETAIL_MAX]


def problem_metadata(body: bytes) -> tuple[tuple[str, bytes], ...]:
    """The document for the trailing metadata, if it is not too long for that."""
    return ((PROBLEM, body),) if len(body) <= METADATA_MAX // 2 else ()


def status_of_refusal(code: str) -> StatusCode:
    """The gRPC status of a runner that is refused with this code; what may pass is `unavailable`."""
    return _OF_RUNNERS.get(code, StatusCode.UNAVAILABLE)


def read_status(code: StatusCode, trailing: Iterable[tuple[str, Any]] | None) -> tuple[int, bytes] | None:
    """The status and the document of REST behind a gRPC status; None if no coordinator has answered."""
    for name, value in trailing or ():
        if name == PROBLEM:
            document = json.loads(value)
            return int(document.get("status", 500)), bytes(value)
    found = _STATUS_OF.get(code)
    return None if found is None else (found, b"")


def bearer(metadata: Iterable[tuple[str, Any]] | None) -> str:
    """The token that a call was made with; empty if there is none, or more than one."""
    shown = [str(value) for name, value in metadata or () if name == "authorization"]
    scheme, _, token = shown[0].partition(" ") if len(shown) == 1 else ("", "", "")
    return token.strip() if scheme.lower() == "bearer" else ""
