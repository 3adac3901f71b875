"""The OpenAPI 3.1 document, made from the structs and the route table. `docs/reference` keeps a copy."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from phalanx.api.schema import sse
from phalanx.api.schema.apply import ApplyRequest, PlanFilesRequest, PlanRequest
from phalanx.api.schema.approvals import ApprovalRequest
from phalanx.api.schema.calls import CallsRequest, GiveRequest, TakeRequest
from phalanx.api.schema.changes import HoldRequest, UpdateRequest
from phalanx.api.schema.cluster import (
    DrainRequest,
    ElasticRequest,
    LoseRequest,
    RotateRequest,
    TokenRequest,
    TopologySpec,
)
from phalanx.api.schema.documents import PROBLEM_TYPE, Nothing, Problem
from phalanx.api.schema.jobs import WatchEvent
from phalanx.api.schema.logins import LoginTicketRequest, OpenLoginRequest
from phalanx.api.schema.overlay import ReserveRequest
from phalanx.api.schema.pages import ChangesView
from phalanx.api.schema.queues import QuotaSpec
from phalanx.api.schema.sessions import ExecRequest, ForwardRequest, InputRequest
from phalanx.api.schema.submission import SubmitRequest
from phalanx.api.schema.sweeps import ResubmitRequest, RetryTasksRequest, RowsPiece
from phalanx.api.schema.vps import SnapshotRequest, VpsRequest
from phalanx.api.schema.workflow_files import WorkflowFilesRequest
from phalanx.api.schema.workflows import RetryRequest, WorkflowRequest
from phalanx.api.server.route import Route
from phalanx.api.server.routes.table import ROUTES

VERSION = "1"
_REF = "#/components/schemas/{name}"
_PLURALS = {
    "jobs": "job",
    "tasks": "task",
    "nodes": "node",
    "workers": "node",
    "queues": "queue",
    "tokens": "token",
    "workflows": "workflow",
    "executors": "executor",
    "sessions": "session",
    "reservations": "node",
    "addresses": "node",
    "logins": "login",
    "pages": "page",
}
EXAMPLES: dict[type[Struct], dict[str, Any]] = {
    SubmitRequest: {"command": ["python", "train.py"], "cores": 4, "memory": "16GiB", "gpus": 1},
    RowsPiece: {
        "upload": "u-1",
        "piece": 0,
        "columns": ["lr", "seed"],
        "rows": [["0.1", "1"], ["0.01", "2"]],
    },
    RetryTasksRequest: {},
    ResubmitRequest: {"set": {"gpus": 2, "param.lr": "0.1,0.01"}},
    DrainRequest: {"reason": "a fan is broken"},
    HoldRequest: {"reason": "until the data is there"},
    UpdateRequest: {"priority": 10, "time_limit": "12h"},
    ExecRequest: {"command": ["nvidia-smi"]},
    ForwardRequest: {"port": 8888},
    InputRequest: {"attempt": 1},
    SnapshotRequest: {"name": "before-upgrade"},
    VpsRequest: {"ssh": "generate", "name": "lab", "targets": ["n1"], "cores": 4, "memory": "16GiB"},
    ElasticRequest: {"enabled": False, "reason": "saves power at night"},
    LoseRequest: {"reason": "the rack has no power"},
    ApplyRequest: {
        "specs": [
            {
                "name": "train",
                "gang": True,
                "gather": [{"layer": "rack", "must": True}],
                "groups": [{"tasks": 4, "gpus": 8, "command": ["torchrun", "train.py"]}],
            }
        ]
    },
    PlanRequest: {
        "specs": [{"gang": True, "groups": [{"tasks": 4, "gpus": 8, "command": ["torchrun", "train.py"]}]}]
    },
    PlanFilesRequest: {
        "files": [
            {"name": "job.yaml", "text": "name: train\ngroups:\n- command: [python, train.py]\n  gpus: 8\n"}
        ]
    },
    CallsRequest: {
        "python": "cpython 3.12",
        "batches": [
            {"digest": "5f2b", "function": "gASV", "calls": [{"id": 0, "arguments": "gASV"}], "retries": 3}
        ],
    },
    TakeRequest: {
        "task": "01kxq3m5x8t2v6z9b1c4d7f0ha.1",
        "attempt": 1,
        "python": "cpython 3.12",
        "number": 1,
        "want": 10,
        "timeout_s": 0.0,
    },
    GiveRequest: {
        "task": "01kxq3m5x8t2v6z9b1c4d7f0ha.1",
        "attempt": 1,
        "results": [{"id": 0, "outcome": "returned", "value": "gARLCS4="}],
    },
    ReserveRequest: {"ip": "10.128.0.5", "ttl": 300},
    ApprovalRequest: {"reason": "ask for fewer GPUs"},
    QuotaSpec: {"gpus": 64, "memory": "2TiB"},
    TokenRequest: {"name": "ada", "role": "user", "expires": "30d"},
    RotateRequest: {"overlap": "1h"},
    LoginTicketRequest: {"coordinators": ["https://head-1:7433", "https://head-2:7433"]},
    OpenLoginRequest: {"ticket": "phx_ui_..."},
    WorkflowFilesRequest: {
        "files": [
            {
                "name": "flow.yaml",
                "text": "spec:\n  stages:\n  - {name: train, spec: {command: [python, train.py]}}\n"
                '  - {name: judge, spec: {command: [python, judge.py, "${train.result.model}"]}}\n',
            }
        ],
        "cwd": "/home/ada/work",
    },
    WorkflowRequest: {
        "workflow": {
            "name": "fine-tune",
            "stages": [
                {"name": "train", "job": {"groups": [{"gpus": 1, "command": ["python", "train.py"]}]}},
                {
                    "name": "judge",
                    "after": ["train"],
                    "job": {"groups": [{"command": ["python", "judge.py", "${train.result.model}"]}]},
                },
            ],
        }
    },
    RetryRequest: {"from_stage": "judge"},
    TopologySpec: {"layers": [{"name": "rack", "keys": ["phalanx/rack"]}]},
}
STREAMED = {"/v1/pages/changes": ChangesView}  # what the data of an event is
_LOG_HEADERS = {
    "X-Phalanx-Offset": "Offset of this answer's first byte in the output.",
    "X-Phalanx-Size": "Size of the output when the answer began.",
    "X-Phalanx-Attempt": "Number of the attempt that wrote it.",
}

_FILE_HEADERS = {
    "X-Phalanx-Size": "Size of the file.",
    "X-Phalanx-Sha256": "Digest of the file, as its task wrote it.",
}


@cache
def openapi_document() -> bytes:
    """The document, as the app serves it and as the repository keeps it."""
    return (json.dumps(_document(), indent=2, sort_keys=True) + "\n").encode()


def write_openapi(path: Path) -> None:
    """Write the copy that the repository keeps."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(openapi_document())


def _document() -> dict[str, Any]:
    types = [route.answer for route in ROUTES if route.answer is not None]
    types += [route.body for route in ROUTES if route.body is not Nothing]
    _, schemas = msgspec.json.schema_components([*types, Problem, WatchEvent, ChangesView], ref_template=_REF)
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Phalanx",
            "version": VERSION,
            "description": "A scheduler for AI work. Unknown fields and parameters are rejected.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": _operation_id(route),
        "summary": route.summary,
        "tags": [_tag(route)],
        "parameters": [*_path_parameters(route), *_query_parameters(route.query), *_header_parameters(route)],
        "responses": {str(route.status): _answer(route), "default": _problem()},
        "x-permission": route.permission,
    }
    if route.body is not Nothing:
        content = _schema(route.body) | {"example": EXAMPLES[route.body]}
        operation["requestBody"] = {"required": True, "content": {"application/json": content}}
    if route.permission == "open":
        operation["security"] = []
    return operation


def _operation_id(route: Route) -> str:
    return f"{route.handler.__name__}_{_tag(route)}"


def _tag(route: Route) -> str:
    noun = route.path.removeprefix("/v1/").strip("/").partition("/")[0]
    return _PLURALS.get(noun, "cluster")


def _answer(route: Route) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": route.summary}
    if route.answer is not None:
        return answer | {"content": {route.media: _schema(route.answer)}}
    answer["content"] = {route.media: {}}
    if route.media == sse.MEDIA_TYPE:
        answer["content"][route.media]["x-event-data"] = _schema(STREAMED.get(route.path, WatchEvent))[
            "schema"
        ]
    else:
        about = _FILE_HEADERS if "{path}" in route.path else _LOG_HEADERS
        answer["headers"] = {
            name: {
                "description": text,
                "schema": {"type": "string" if name == "X-Phalanx-Sha256" else "integer"},
            }
            for name, text in about.items()
        }
    return answer


def _problem() -> dict[str, Any]:
    return {"description": "The error and what to do about it.", "content": {PROBLEM_TYPE: _schema(Problem)}}


def _schema(form: Any) -> dict[str, Any]:
    (schema,), _ = msgspec.json.schema_components([form], ref_template=_REF)
    return {"schema": schema}


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    if "{id}" not in route.path:
        return []
    noun = _tag(route)
    named = noun in ("node", "queue")
    if noun == "token":
        text = "Id of a token, as listed."
        return [_parameter("path", "id", text, {"type": "string", "minLength": 1}, required=True)]
    text = f"Name of a {noun}." if named else f"Id of a {noun}, or a unique prefix of it."
    id = _parameter("path", "id", text, {"type": "string", "minLength": 1}, required=True)
    if "{path}" not in route.path:
        return [id]
    text = "Path of a file; slashes within it need not be quoted."
    return [id, _parameter("path", "path", text, {"type": "string", "minLength": 1}, required=True)]


def _query_parameters(query: type[Struct]) -> list[dict[str, Any]]:
    _, components = msgspec.json.schema_components([query], ref_template=_REF)
    properties = components[query.__name__].get("properties", {})
    return [_parameter("query", name, "", schema) for name, schema in properties.items()]


def _header_parameters(route: Route) -> list[dict[str, Any]]:
    if not route.header:
        return []
    pattern = "^[0-9]{1,18}$" if route.header == "Last-Event-ID" else "^[!-~]{1,255}$"
    return [_parameter("header", route.header, "", {"type": "string", "pattern": pattern})]


def _parameter(
    place: str, name: str, text: str, schema: dict[str, Any], *, required: bool = False
) -> dict[str, Any]:
    parameter = {"in": place, "name": name, "schema": schema, "required": required}
    return parameter | {"description": text} if text else parameter


if __name__ == "__main__":
    write_openapi(Path("docs/reference/openapi.json"))
