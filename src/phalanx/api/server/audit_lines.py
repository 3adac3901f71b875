"""A line of the audit log from a request: who, from where, what in plain words, which job, and how it went.

Never a token, never a body. Where the lines are kept is the coordinator's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from phalanx.api.schema.cluster import AuditLine
from phalanx.api.server.messages import HttpRequest
from phalanx.api.server.route import Route
from phalanx.core.model.job import is_job_id
from phalanx.errors import PhalanxError

TOKEN_SIGN = "phx_"  # noqa: S105 - what every token of ours begins with
_NUMBERED = (
    "jobs",
    "tasks",
    "workflows",
    "vps",
)  # what has a number; others are known by the name in the path
_NOUNS = {
    "jobs": "",
    "tasks": "",
    "workflows": "workflow",
    "vps": "VPS",
    "nodes": "node",
    "workers": "node",
    "tokens": "token",
    "logins": "login",
    "queues": "queue",
    "executors": "executor",
    "reservations": "address",
}
# What the path alone does not say well.
_ACTIONS = {
    ("POST", "/v1/jobs"): "submit",
    ("POST", "/v1/workflows"): "submit workflow",
    ("POST", "/v1/workflows/files"): "submit workflow file",
    ("POST", "/v1/vps"): "create VPS",
    ("POST", "/v1/tokens"): "create token",
    ("POST", "/v1/logins/tickets"): "ask for a login",
    ("POST", "/v1/logins"): "log in",
    ("DELETE", "/v1/logins/current"): "log out",
    ("DELETE", "/v1/logins/{id}"): "end login",
    ("POST", "/v1/apply"): "apply",
    ("POST", "/v1/rows"): "send rows",
    ("POST", "/v1/plan"): "plan",
    ("POST", "/v1/plan/files"): "plan files",
    ("PATCH", "/v1/jobs/{id}"): "update",
    ("PUT", "/v1/queues/{id}"): "set queue",
    ("DELETE", "/v1/queues/{id}"): "remove queue",
    ("PUT", "/v1/topology"): "set topology",
    ("POST", "/v1/tasks/{id}/forward"): "port-forward",
    ("POST", "/v1/tasks/{id}/stdin"): "give input",
    ("POST", "/v1/vps/{id}/snapshots"): "snapshot VPS",
    ("POST", "/v1/vps/{id}/remove-snapshot"): "remove snapshot of VPS",
    ("POST", "/v1/nodes/{id}/elastic"): "set node elastic",
    ("POST", "/v1/workers/{id}/elastic"): "set node elastic",
    ("POST", "/v1/nodes/{id}/lose"): "declare node lost",
    ("POST", "/v1/nodes/{id}/reserve"): "reserve address",
    ("POST", "/v1/executors/{id}/calls"): "send calls",
    ("POST", "/v1/jobs/{id}/take"): "take calls",
    ("POST", "/v1/jobs/{id}/give"): "give results of calls",
}


def audit_line(
    http_request: HttpRequest,
    route: Route | None,
    id: str,
    status: int,
    error: PhalanxError | None,
    in_numbers: Callable[[str], str],
) -> AuditLine:
    """The line about a request that has an answer. `id` is what its path names, as it was written there."""
    who = http_request.identity
    is_known = bool(who.fingerprint) and TOKEN_SIGN not in id  # nobody knows what a stranger puts into a path
    return AuditLine(
        name=who.name,
        role=who.role if who.fingerprint else "",
        fingerprint=who.fingerprint,
        where=http_request.where,
        method=http_request.method,
        route=route.path if route else "",
        id=id if is_known else "",
        status=status,
        reason=error.reason if error is not None else "",
        request_id=http_request.request_id,
        what=http_request.what,
        action=action_of(http_request.method, route.path) if route else "",
        number=_number(http_request, route, in_numbers) if is_known else "",
        made=in_ranges(map(in_numbers, http_request.made)),
    )


def action_of(method: str, path: str) -> str:
    """What a route does, in a word or two: submit, cancel, drain node, read logs."""
    if (method, path) in _ACTIONS:
        return _ACTIONS[method, path]
    noun, _, rest = path.removeprefix("/v1").removeprefix("/").partition("/")
    verb = rest.removeprefix("{id}").removeprefix("/").partition("/")[0]
    if method == "GET":
        return f"read {verb or noun}"
    return " ".join(filter(None, (verb or method.lower(), _NOUNS.get(noun, noun))))


def in_ranges(numbers: Iterable[str]) -> str:
    """Numbers as short as they can be written: 17, 17-20, 3, 7."""
    told: list[list[str]] = []
    for each in numbers:
        if told and each.isdecimal() and told[-1][-1].isdecimal() and int(each) == int(told[-1][-1]) + 1:
            told[-1] = [told[-1][0], each]
        else:
            told.append([each])
    return ", ".join("-".join(each) for each in told)


def _number(http_request: HttpRequest, route: Route | None, in_numbers: Callable[[str], str]) -> str:
    """The number of the job that the path names, once it was found; it is told from names, which are used again."""
    noun = route.path.removeprefix("/v1/").partition("/")[0] if route else ""
    is_found = noun in _NUMBERED and is_job_id(http_request.id[:26])
    return in_numbers(http_request.id) if is_found else ""
