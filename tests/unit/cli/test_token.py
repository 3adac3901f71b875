"""`phalanx token` and `phalanx audit`: a new token alone on standard output, and lists that people can read."""

from __future__ import annotations

from typing import Any

from msgspec import json

from phalanx.api.audit import AuditLine
from phalanx.api.schema_tokens import NewToken, TokenRequest, TokenView
from tests.unit.cli.stage import Cli, FakeCluster

ID = "3b03e5da89561dd2"
MADE = TokenView(ID, "user", "ada", "user", True, False, 1000.0, "admin", 2000.0, None)
LINE = AuditLine(
    1000.0, "ada", "user", ID, "127.0.0.1:5", "POST", "/v1/nodes/{id}/drain", "n1", 403, "RoleForbids"
)


class Grants:
    """What the fake cluster answers about tokens."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        for verb in ("create_token", "tokens", "revoke_token", "rotate_token", "audit"):
            setattr(cluster, verb, getattr(self, verb))

    def create_token(self, request: TokenRequest) -> NewToken:
        self._cluster.asked.append(("create_token", request))
        return NewToken("phx_new", MADE)

    def tokens(self) -> list[TokenView]:
        used = TokenView(ID, "join", "", "", True, False, 1.0, "admin", 2.0, None, "n1")
        return [MADE, used, TokenView(ID, "node", "n1", "", False, True, 1.0, "admin", 2.0, 3.0)]

    def revoke_token(self, id: str) -> TokenView:
        self._cluster.asked.append(("revoke_token", id))
        return MADE

    def rotate_token(self, id: str, overlap: Any) -> NewToken:
        self._cluster.asked.append(("rotate_token", id, overlap))
        return NewToken("phx_next", MADE)

    def audit(self, tail: int) -> list[AuditLine]:
        self._cluster.asked.append(("audit", tail))
        return [LINE]


def test_a_new_token_stands_alone_on_standard_output(cli: Cli, cluster: FakeCluster):
    Grants(cluster)
    said = cli("token", "create", "--name", "ada", "--role", "user", "--expires", "30d")
    assert said.out == "phx_new\n"
    assert ID in said.err and "only time" in said.err
    assert cluster.asked == [("create_token", TokenRequest("user", "ada", "user", "30d"))]


def test_a_join_token_is_for_any_node_or_for_one(cli: Cli, cluster: FakeCluster):
    Grants(cluster)
    assert cli("token", "create", "--join").code == 0
    assert cli("token", "create", "--join", "--node", "n7", "--expires", "1h").code == 0
    assert [call[1] for call in cluster.asked] == [
        TokenRequest("join"),
        TokenRequest("join", expires="1h", node="n7"),
    ]


def test_a_token_without_a_role_is_refused_before_anybody_is_asked(cli: Cli, cluster: FakeCluster):
    Grants(cluster)
    for words in ((), ("--role", "root")):
        said = cli("token", "create", *words)
        assert said.code == 2
        assert "viewer, user, operator, admin" in said.err
    assert cluster.asked == []


def test_a_list_tells_the_state_of_each(cli: Cli, cluster: FakeCluster):
    Grants(cluster)
    lines = cli("token", "list").out.splitlines()
    assert [line.split()[4] for line in lines[1:]] == ["valid", "used", "revoked"]
    told = json.decode(cli("token", "list", "-o", "json").out, type=list[TokenView])
    assert told[0] == MADE


def test_tokens_are_revoked_and_rotated(cli: Cli, cluster: FakeCluster):
    Grants(cluster)
    assert "revoked" in cli("token", "revoke", ID).out
    assert cli("token", "rotate", ID, "--overlap", "5m").out == "phx_next\n"
    made = json.decode(cli("token", "rotate", ID, "-o", "json").out, type=NewToken)
    assert made.token == "phx_next"
    assert cluster.asked == [
        ("revoke_token", ID),
        ("rotate_token", ID, "5m"),
        ("rotate_token", ID, None),
    ]


def test_the_audit_is_shown(cli: Cli, cluster: FakeCluster):
    Grants(cluster)
    said = cli("audit", "--tail", "5")
    assert "POST /v1/nodes/n1/drain" in said.out and "403" in said.out and "RoleForbids" in said.out
    assert json.decode(cli("audit", "-o", "json").out, type=list[AuditLine]) == [LINE]
    assert cluster.asked == [("audit", 5), ("audit", 100)]
