"""What is recorded: every change and every refusal, with user and address, and neither a token nor a body."""

from __future__ import annotations

from unittest.mock import AsyncMock

import msgspec
import pytest

from phalanx.api.schema.cluster import AuditLine
from phalanx.api.server.app import build_app
from phalanx.api.server.audit_lines import action_of, in_ranges
from phalanx.api.server.auth import Tokens, fingerprint
from phalanx.api.server.messages import App
from phalanx.api.server.routes.table import ROUTES
from phalanx.errors import Unavailable
from tests.support.fake_commands import FakeCommands
from tests.support.rest_app import JSON, TOKEN, ask

pytestmark = pytest.mark.anyio


class Notes:
    def __init__(self) -> None:
        self.lines: list[AuditLine] = []

    def note(self, line: AuditLine) -> None:
        self.lines.append(line)

    def tail(self, count: int) -> list[AuditLine]:
        return self.lines[-count:]


def audited(role: str = "admin", cluster: FakeCommands | None = None) -> tuple[App, Notes]:
    notes = Notes()
    tokens = Tokens([("ada", TOKEN)], role)  # type: ignore[arg-type]
    return build_app(cluster or FakeCommands(), tokens, audit=notes), notes


async def test_a_change_is_written_down_with_who_and_how_it_went():
    app, notes = audited()
    await ask(app, "POST", "/v1/nodes/n1/drain", b'{"reason": "planted-reason"}', headers=JSON)
    (line,) = notes.lines
    assert (line.name, line.role, line.fingerprint) == ("ada", "admin", fingerprint(TOKEN))
    assert (line.method, line.route, line.id, line.status) == ("POST", "/v1/nodes/{id}/drain", "n1", 200)
    assert (line.action, line.number, line.made) == ("drain node", "", "")
    assert len(line.request_id) == 16


async def test_a_submit_names_what_it_made_and_a_cancel_the_job_behind_the_name():
    cluster = FakeCommands()
    app, notes = audited(cluster=cluster)
    targets = b'{"command": ["true"], "targets": ["n1", "n2"]}'
    made = (await ask(app, "POST", "/v1/jobs", targets, headers=JSON)).json()["task_ids"]
    numbers = {id: str(17 + at) for at, id in enumerate(made)}
    cluster.in_numbers = lambda text: numbers.get(text, text)  # type: ignore[method-assign]
    cluster.named = AsyncMock(return_value=made[0])  # type: ignore[method-assign]
    await ask(app, "POST", "/v1/jobs/train/cancel", b"", headers=JSON)
    await ask(app, "POST", "/v1/jobs", targets, headers=JSON)
    submitted, cancelled, again = notes.lines
    assert (submitted.action, submitted.made) == ("submit", ", ".join(made))  # before they had numbers
    assert (cancelled.action, cancelled.id, cancelled.number) == ("cancel", "train", "17")
    assert again.made and again.number == ""


def test_every_route_has_plain_words():
    told = {(route.method, route.path): action_of(route.method, route.path) for route in ROUTES}
    assert not {key: text for key, text in told.items() if set(text) & set("/{}_")}
    changes = [text for (method, _), text in told.items() if method != "GET"]
    twice = {text for text in changes if changes.count(text) > 1}
    assert twice == {"cancel", "evict", "set node elastic"}  # of jobs and of tasks, of nodes and of workers
    assert not any(word in text.split() for text in changes for word in ("post", "put", "delete", "patch"))
    assert told["POST", "/v1/workflows/{id}/approve"] == "approve workflow"
    assert told["GET", "/v1/audit"] == "read audit"


def test_numbers_in_a_row_are_a_range():
    assert in_ranges(["17"]) == "17"
    assert in_ranges(["17", "18", "19", "30"]) == "17-19, 30"
    assert in_ranges(["3b03", "3b04"]) == "3b03, 3b04"
    assert in_ranges([]) == ""


@pytest.mark.parametrize(("id", "body", "status"), [("nobody", b'{"reason": "x"}', 404), ("n1", b"{", 400)])
async def test_a_change_that_failed_is_written_down_too(id: str, body: bytes, status: int):
    app, notes = audited()
    await ask(app, "POST", f"/v1/nodes/{id}/drain", body, headers=JSON)
    assert [line.status for line in notes.lines] == [status]


async def test_reading_is_not_written_down():
    app, notes = audited()
    for path in ("/v1/jobs", "/v1/nodes", "/livez", "/v1/nowhere"):
        await ask(app, path=path)
    assert notes.lines == []


async def test_a_stranger_is_written_down_without_a_name():
    app, notes = audited()
    await ask(app, path="/v1/jobs", headers={"authorization": "Bearer phx_planted"})
    await ask(app, path="/v1/jobs", headers={"host": "evil.example"})
    assert [(line.name, line.role, line.status, line.reason) for line in notes.lines] == [
        ("", "", 401, "Unauthorized"),
        ("", "", 403, "HostNotAllowed"),
    ]


async def test_what_a_role_may_not_do_is_written_down():
    app, notes = audited("viewer")
    await ask(app, "POST", "/v1/jobs", b'{"command": ["true"]}', headers=JSON)
    assert [(line.name, line.status, line.reason) for line in notes.lines] == [("ada", 403, "RoleForbids")]


async def test_neither_a_token_nor_a_body_is_written_down():
    app, notes = audited(cluster=FakeCommands())
    body = b'{"command": ["planted-argv"], "env": {"A": "planted-env"}}'
    await ask(app, "POST", "/v1/jobs", body, query=b"x=planted-query", headers=JSON)
    await ask(app, "POST", "/v1/jobs", body, headers=JSON)
    await ask(app, "GET", "/v1/jobs/planted path", headers={"authorization": "Bearer planted"})
    told = msgspec.json.encode(notes.lines)
    assert len(notes.lines) == 3
    assert b"planted" not in told
    assert TOKEN.encode() not in told


async def test_a_failure_of_ours_is_written_down_with_its_change():
    cluster = FakeCommands()

    async def fails(name: str, reason: str, **_: object) -> None:
        raise Unavailable("no disk")

    cluster.drain = fails  # type: ignore[method-assign,assignment]
    app, notes = audited(cluster=cluster)
    await ask(app, "POST", "/v1/nodes/n1/drain", b'{"reason": "x"}', headers=JSON)
    assert [line.status for line in notes.lines] == [503]


async def test_an_admin_reads_it():
    app, _ = audited()
    await ask(app, "POST", "/v1/nodes/n1/resume", b"", headers=JSON)
    told = (await ask(app, path="/v1/audit", query=b"tail=1")).json()
    assert [(line["name"], line["id"], line["status"]) for line in told] == [("ada", "n1", 200)]
