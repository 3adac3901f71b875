"""`phalanx token` and `phalanx audit`: a new token alone on standard output, and lists that people can read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import json

from phalanx.api.schema.cluster import AuditLine, NewToken, TokenRequest, TokenView
from phalanx.cli.token import audit_id
from phalanx.endpoint import Endpoint
from tests.support.fake_client import Cli, FakeClient, a_node

ID = "3b03e5da89561dd2"
MADE = TokenView(ID, "user", "ada", "user", True, False, 1000.0, "admin", 2000.0, None)
LINE = AuditLine(
    1000.0,
    "ada",
    "user",
    ID,
    "127.0.0.1:5",
    "POST",
    "/v1/nodes/{id}/drain",
    "n1",
    403,
    "RoleForbids",
    action="drain node",
)


class Grants:
    """What the fake cluster answers about tokens."""

    def __init__(self, cluster: FakeClient) -> None:
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


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (AuditLine(made="17-20"), "17-20"),
        (AuditLine(id="bobbig", number="17"), "17 (bobbig)"),
        (AuditLine(id="17", number="17"), "17"),
        (AuditLine(id="01k0000000000000000000000a", number="17"), "17"),
        (AuditLine(id="11", number="11", made="12"), "11: 12"),
        (AuditLine(id="n1"), "n1"),
        (AuditLine(), "-"),
    ],
)
def test_the_audit_says_which_job(line: AuditLine, told: str):
    assert audit_id(line) == told


def test_a_new_token_stands_alone_on_standard_output(cli: Cli, cluster: FakeClient):
    Grants(cluster)
    said = cli("token", "create", "--name", "ada", "--role", "user", "--expires", "30d")
    assert said.out == "phx_new\n"
    assert ID in said.err and "shown again" in said.err
    assert cluster.asked[0] == ("create_token", TokenRequest("user", "ada", "user", "30d"))
    assert "phalanx queue set default --priority-max" in said.err


def test_a_join_token_is_for_any_node_or_for_one(cli: Cli, cluster: FakeClient):
    Grants(cluster)
    assert cli("token", "create", "--join").code == 0
    assert cli("token", "create", "--join", "--node", "n7", "--expires", "1h").code == 0
    assert [call[1] for call in cluster.asked] == [
        TokenRequest("join"),
        TokenRequest("join", expires="1h", node="n7"),
    ]


def test_a_token_without_a_role_is_refused_before_anybody_is_asked(cli: Cli, cluster: FakeClient):
    Grants(cluster)
    for words in ((), ("--role", "root")):
        said = cli("token", "create", *words)
        assert said.code == 2
        assert "viewer, user, operator, admin" in said.err
    assert cluster.asked == []


def test_a_list_tells_the_state_of_each(cli: Cli, cluster: FakeClient):
    Grants(cluster)
    lines = cli("token", "list").out.splitlines()
    assert [line.split()[4] for line in lines[1:]] == ["valid", "used", "revoked"]
    told = json.decode(cli("token", "list", "-o", "json").out, type=list[TokenView])
    assert told[0] == MADE


def test_tokens_are_revoked_and_rotated(cli: Cli, cluster: FakeClient):
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


def test_the_audit_is_shown(cli: Cli, cluster: FakeClient):
    Grants(cluster)
    said = cli("audit", "--tail", "5")
    assert "drain node  n1  403     RoleForbids" in said.out
    assert json.decode(cli("audit", "-o", "json").out, type=list[AuditLine]) == [LINE]
    assert cluster.asked == [("audit", 5), ("audit", 100)]


@pytest.mark.parametrize(
    ("role", "runner", "is_told"),
    [("user", "n1", True), ("operator", "n1", True), ("viewer", "n1", False), ("user", "n2", False)],
)
def test_where_tasks_share_the_clusters_account_that_is_said(
    cli: Cli, cluster: FakeClient, away: Path, role: str, runner: str, is_told: bool
):
    Grants(cluster)
    cluster.machines = [a_node("n1")]
    assert "become admin" not in cli("token", "create", "--role", role).err  # there is no cluster here
    state = away.parent / "home/.local/state/phalanx"
    (state / "runners" / runner).mkdir(parents=True)
    endpoint = Endpoint("http://127.0.0.1:7433", "127.0.0.1:7434", str(state / "credentials"), 1)
    (state / "endpoint.json").write_bytes(json.encode(endpoint))
    said = cli("token", "create", "--role", role)
    assert said.out == "phx_new\n"
    told = (
        "tasks on n1 run under the account of the cluster itself" in said.err and "become admin" in said.err
    )
    assert told is is_told
    elsewhere = cli("--address", "https://head:7433", "token", "create", "--role", role)
    assert "become admin" not in elsewhere.err
