"""What is accepted: created tokens, join tokens, nodes, and a job's token (S3, S5, S6)."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.api.server.auth import digest, fingerprint
from phalanx.coordinator.credentials import Credentials
from phalanx.coordinator.link_auth import LinkAccess
from phalanx.coordinator.secret import ClusterSecret
from phalanx.core.cluster.decide import declared
from phalanx.core.cluster.decide.declared import KEEP_ENDED_S, USED_EVERY_S
from phalanx.core.cluster.decision import Accepted, Answer, Refused
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import (
    Admit,
    CreateCredential,
    Hello,
    Input,
    KnowSecret,
    RevokeCredential,
    RotateCredential,
    Submit,
    UseCredentials,
)
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.transitions import apply, decide
from phalanx.core.model.credential import Credential, Kind
from phalanx.core.model.job import Command, Group, Job
from phalanx.core.model.resources import Capacity, Request
from phalanx.errors import ConfigError, Unavailable
from tests.support.clocks import ManualClock
from tests.support.token_files import names

JOB = "01kx0000000000000000000001"


class Stage:
    """Credentials over a state that decides and applies."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.state = ClusterState()
        self.credentials = Credentials.local("user-token", "node-token")
        self.credentials._clock = self.clock
        self.credentials.follow(lambda: self.state)

    def do(self, given: Input) -> Answer | None:
        decision = decide(self.state, given, self.clock.at)
        for event in decision.events:
            apply(self.state, event)
        assert self.state.skipped == 0
        return decision.answer

    def made(self, token: str, kind: Kind = "user", **more: object) -> str:
        record = Credential(fingerprint(token), kind, digest(token), self.clock.at, **more)  # type: ignore[arg-type]
        assert isinstance(self.do(CreateCredential(record)), Accepted)
        return record.id

    def hello(self, node: str, origin: str) -> Hello:
        return Hello(node, f"life of {origin}", origin, Capacity(4, 1 << 30), [])

    def joins(self, token: str, node: str = "n1", origin: str = "o1") -> LinkAccess:
        """A runner shows a join token, as links does it."""
        entry = self.credentials.accepts_node(token, node, origin)
        if entry.credential is None:
            return entry
        answer = self.do(Admit(self.hello(node, origin), entry.join, entry.credential))
        if not isinstance(answer, Refused):
            return entry
        assert answer.reason.code in {"JoinRefused", "NameTaken"}
        return LinkAccess(answer.reason.text)

    def enters(self, token: str, node: str = "n1") -> bool:
        return not self.credentials.accepts_node(token, node).refusal


def code(answer: Answer | None) -> str:
    assert isinstance(answer, Refused)
    return answer.reason.code


def test_a_created_token_is_somebody_until_it_ends():
    stage = Stage()
    stage.made("phx_a", name="ada", role="user", expires_at=2000.0)
    found = stage.credentials.accepts_user("phx_a")
    assert found is not None
    assert (found.name, found.role, found.fingerprint) == ("ada", "user", fingerprint("phx_a"))
    stage.clock.at = 2000.0
    assert stage.credentials.accepts_user("phx_a") is None


@pytest.mark.parametrize("token", ["phx_", "phx_aa", "PHX_A", "phx_a ", "", "x" * 5000, "phx_\udcff"])
def test_what_is_not_the_token_is_nobody(token: str):
    stage = Stage()
    stage.made("phx_a", name="ada", role="user")
    assert stage.credentials.accepts_user(token) is None
    assert not stage.enters(token)


def test_the_state_holds_hashes_and_outlives_an_image():
    stage = Stage()
    stage.made("phx_planted", name="ada", role="user")
    stage.do(KnowSecret("f" * 16))
    body = encode_state(stage.state)
    assert b"phx_planted" not in body
    stage.state = decode_state(body, stage.state.rules)
    assert stage.credentials.accepts_user("phx_planted") is not None
    assert stage.state.keyring.secret == "f" * 16


def test_a_revoked_token_falls_with_those_made_with_it_for_the_same_name():
    stage = Stage()
    first = stage.made("a", name="ada", role="user")
    second = stage.made("b", name="ada", role="user", parent=first)
    stage.made("c", name="ada", role="user", parent=second)
    stage.made("d", name="bob", role="user", parent=first)
    assert stage.do(RevokeCredential(first)) == Accepted(3)
    assert names(stage.credentials, "a", "b", "c", "d") == [False, False, False, True]
    assert code(stage.do(RevokeCredential(first))) == "TokenEnded"
    assert code(stage.do(RevokeCredential("unknown"))) == "TokenNotFound"


def test_rotation_overlaps():
    stage = Stage()
    old = stage.made("old", name="ada", role="user")
    new = Credential(fingerprint("new"), "user", digest("new"), 1000.0, "ada", "user")
    stage.do(RotateCredential(old, new, 1060.0))
    assert names(stage.credentials, "old", "new") == [True, True]
    stage.clock.at = 1060.0
    assert names(stage.credentials, "old", "new") == [False, True]
    assert code(stage.do(RotateCredential(old, new, 1060.0))) == "NotRotated"


def test_there_is_an_end_to_how_many_tokens_are_kept(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(declared, "CREDENTIALS_MAX", 1)
    stage = Stage()
    stage.made("a", name="ada", role="user")
    more = Credential(fingerprint("b"), "user", digest("b"), 1000.0, "ada", "user")
    assert code(stage.do(CreateCredential(more))) == "TooManyTokens"


def test_one_user_leaves_room_for_tokens_of_others(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(declared, "USER_CREDENTIALS_MAX", 3)
    stage = Stage()
    first, *_ = [stage.made(each, name="ada", role="user", created_by="ada") for each in "abc"]
    more = Credential(fingerprint("d"), "user", digest("d"), 1000.0, "ada", "user", "ada")
    assert code(stage.do(CreateCredential(more))) == "TooManyTokens"
    stage.made("e", name="bob", role="user", created_by="bob")
    stage.made("f", name="ada", role="user", created_by="root")
    stage.do(RevokeCredential(first))
    assert stage.do(CreateCredential(more)) == Accepted()
    assert first not in stage.state.keyring.by_id  # an ended one of the same user gave way
    assert names(stage.credentials, "a", "b", "d", "e", "f") == [False, True, True, True, True]


def test_who_rotates_a_token_for_ever_keeps_nobody_else_from_making_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(declared, "USER_CREDENTIALS_MAX", 3)
    stage = Stage()
    start = stage.made("0", name="ada", role="user", created_by="root")
    parent = start
    for number in range(1, 10):
        new = Credential(
            fingerprint(str(number)), "user", digest(str(number)), 1000.0, "ada", "user", "ada", parent
        )
        assert stage.do(RotateCredential(parent, new, stage.clock.at)) == Accepted()
        parent, stage.clock.at = new.id, stage.clock.at + 1.0
    assert len(stage.state.keyring.by_id) == 1 + 3
    assert names(stage.credentials, "8", "9") == [False, True]


def test_a_token_falls_with_the_one_that_it_descends_from_though_one_between_them_is_forgotten():
    stage = Stage()
    first = stage.made("a", name="ada", role="user")
    second = stage.made("b", name="ada", role="user", parent=first, expires_at=1001.0)
    stage.made("c", name="ada", role="user", parent=second)
    stage.clock.at = 1002.0 + KEEP_ENDED_S
    stage.made("d", name="bob", role="user")
    assert second not in stage.state.keyring.by_id
    assert stage.do(RevokeCredential(first)) == Accepted(2)
    assert names(stage.credentials, "a", "c", "d") == [False, False, True]


def test_a_use_is_written_down_seldom():
    stage = Stage()
    id = stage.made("a", name="ada", role="user")
    for at, written in ((1000.0, 1), (1001.0, 0), (1000.0 + USED_EVERY_S, 1)):
        stage.clock.at = at
        assert len(decide(stage.state, UseCredentials((id, "unknown")), at).events) == written
        stage.do(UseCredentials((id,)))


def test_what_ended_long_ago_is_forgotten():
    stage = Stage()
    old = stage.made("a", name="ada", role="user", expires_at=1001.0)
    stage.clock.at = 1002.0 + KEEP_ENDED_S
    new = stage.made("b", name="ada", role="user")
    assert list(stage.state.keyring.by_id) == [new] != [old]


# Nodes.


def test_a_join_token_is_given_for_a_credential_of_one_node():
    stage = Stage()
    stage.made("join", "join", expires_at=2000.0)
    entry = stage.joins("join")
    assert (entry.refusal, entry.token.startswith("phx_node_")) == ("", True)
    assert stage.enters(entry.token, "n1")
    assert not stage.enters(entry.token, "n2")
    assert "n1" in stage.state.nodes
    assert stage.credentials.accepts_user(entry.token).role == "node"  # type: ignore[union-attr]
    assert stage.credentials.accepts_user("join").role == "join"  # type: ignore[union-attr]


def test_a_replayed_join_token_is_refused_and_says_why():
    stage = Stage()
    stage.made("join", "join", expires_at=2000.0)
    stage.joins("join", "n1", "o1")
    assert "was used by node 'n1'" in stage.joins("join", "n2", "o2").refusal
    assert "was used by node 'n1'" in stage.joins("join", "n1", "o2").refusal


def test_a_runner_whose_welcome_was_lost_is_given_the_same_again_until_it_has_shown_it():
    stage = Stage()
    stage.made("join", "join", expires_at=2000.0)
    first, second = stage.joins("join"), stage.joins("join")
    assert first.token == second.token
    assert stage.enters(first.token)
    stage.do(UseCredentials((fingerprint(first.token),)))
    assert "already" in stage.joins("join").refusal


def test_another_coordinator_with_the_same_secret_gives_the_same_again():
    one, other = ClusterSecret("s"), ClusterSecret("s")
    assert one.node_credential("j", "n", "o") == other.node_credential("j", "n", "o")
    assert one.node_credential("j", "n", "o") != ClusterSecret("t").node_credential("j", "n", "o")


@pytest.mark.parametrize("when", ["expired", "revoked", "for another", "unknown"])
def test_a_join_token_that_is_no_good(when: str):
    stage = Stage()
    id = stage.made("join", "join", expires_at=2000.0, name="n2" if when == "for another" else "")
    if when == "expired":
        stage.clock.at = 2000.0
    if when == "revoked":
        stage.do(RevokeCredential(id))
    entry = stage.joins("joim" if when == "unknown" else "join")
    assert (when if when != "unknown" else "not one of this cluster's") in entry.refusal.replace(
        "is for node", when
    )
    assert stage.state.nodes == {}


def test_an_unbound_join_token_takes_no_name_that_has_a_credential():
    stage = Stage()
    stage.made("first", "join", expires_at=2000.0)
    old = stage.joins("first", "n1", "o1")
    stage.made("second", "join", expires_at=2000.0)
    assert "--node n1" in stage.joins("second", "n1", "o2").refusal
    stage.made("third", "join", expires_at=2000.0, name="n1")
    stage.state.nodes["n1"].lost = True  # or its name would be taken
    new = stage.joins("third", "n1", "o2")
    assert (stage.enters(old.token), stage.enters(new.token)) == (False, True)


def test_a_join_that_is_refused_for_its_name_does_not_use_up_the_token():
    stage = Stage()
    stage.do(stage.hello("n1", "o1"))
    stage.made("join", "join", expires_at=2000.0)
    assert "another runner" in stage.joins("join", "n1", "o2").refusal
    assert stage.joins("join", "n2", "o2").refusal == ""


def test_a_users_token_speaks_for_no_node_and_a_shared_one_for_any():
    stage = Stage()
    stage.made("phx_a", name="n1", role="admin")
    assert "cannot speak for a node" in stage.credentials.accepts_node("phx_a", "n1").refusal
    assert not stage.enters("user-token")
    assert stage.enters("node-token", "n1")
    assert stage.enters("node-token", "n2")


@pytest.mark.parametrize(("peer", "is_in"), [(None, True), ("n1", True), ("n2", False), ("", False)])
def test_a_certificate_must_be_for_the_node(peer: str | None, is_in: bool):
    assert (Stage().credentials.accepts_node("node-token", "n1", "o", peer).refusal == "") == is_in


# Tasks, and the secret behind them.


def a_running_job(stage: Stage) -> None:
    stage.do(stage.hello("n1", "o1"))
    job = Job(JOB, (Group(Command(("true",)), Request(1)),), JOB, 1000.0, user="ada")
    assert isinstance(stage.do(Submit(job)), Accepted)


def test_a_jobs_token_is_good_while_the_job_lives():
    stage = Stage()
    token = stage.credentials.task_token(JOB)
    assert stage.credentials.accepts_user(token) is None
    a_running_job(stage)
    found = stage.credentials.accepts_user(token)
    assert found is not None
    assert (found.role, found.job, found.name) == ("task", JOB, "ada")
    stage.state.jobs[JOB].status[0] = 3
    stage.state.jobs[JOB].counts[:] = [0, 0, 0, 1, 0, 0]
    assert stage.state.jobs[JOB].is_over
    assert stage.credentials.accepts_user(token) is None


@pytest.mark.parametrize(
    "change", [lambda t: t[:-1], lambda t: t + "A", lambda t: t.replace("1_", "2_"), str.upper]
)
def test_a_forged_or_truncated_job_token_is_nobodys(change):
    stage = Stage()
    a_running_job(stage)
    assert stage.credentials.accepts_user(change(stage.credentials.task_token(JOB))) is None


def test_a_coordinator_with_another_secret_must_not_serve():
    stage = Stage()
    stage.credentials.check()
    (options,) = stage.credentials.inputs()
    stage.do(options)
    assert stage.credentials.inputs() == []
    stage.credentials.check()
    stage.do(KnowSecret("0" * 16))  # the first one stays
    stage.credentials.check()
    stage.credentials._secret = ClusterSecret("another")
    stage.credentials.secret_file = Path("/etc/phalanx/cluster-secret")
    with pytest.raises(ConfigError, match=r"coordinator\.secret_file /etc/phalanx/cluster-secret") as caught:
        stage.credentials.check()
    assert "copy that file from a coordinator" in caught.value.hint


def test_before_the_log_was_read_a_created_token_is_not_refused_but_asked_to_come_again():
    credentials = Credentials.local("u", "n")

    def not_yet() -> ClusterState:
        raise Unavailable("not read")

    credentials.follow(not_yet)
    credentials.check()
    assert names(credentials, "u", "n") == [True, True]
    with pytest.raises(Unavailable, match="not read"):
        credentials.accepts_user("phx_created")
