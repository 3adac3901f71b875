"""What is recorded: every change and every refusal, with user and address, and neither a token nor a body."""

from __future__ import annotations

import msgspec
import pytest

from phalanx.api.schema.cluster import AuditLine
from phalanx.api.server.app import build_app
from phalanx.api.server.auth import Tokens, fingerprint
from phalanx.api.server.messages import App
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
    assert len(line.request_id) == 16


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
