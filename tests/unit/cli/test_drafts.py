"""`phalanx apply` of gangs whose members come one by one, against a coordinator with several users."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from phalanx.api.schema.apply import ApplyReply, ApplyRequest
from phalanx.api.server.app import build_app
from phalanx.api.server.auth import Bearer
from phalanx.cli import session
from phalanx.client.client import Client
from phalanx.client.in_process import BridgedTransport, InProcessTransport
from phalanx.coordinator.main import Coordinator
from phalanx.errors import Conflict
from tests.support.fake_client import Cli
from tests.support.rest_app import a_loop
from tests.unit.coordinator.test_declarations import a_coordinator
from tests.unit.coordinator.test_lookup import People
from tests.unit.manifests.documents import Doc, a_pod, a_podgroup, text_of

As = Callable[..., Client]


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    with a_loop() as loop:
        yield loop


@pytest.fixture
def here(loop: asyncio.AbstractEventLoop) -> Iterator[Coordinator]:
    opening = a_coordinator()
    yield asyncio.run_coroutine_threadsafe(opening.__aenter__(), loop).result(10)
    asyncio.run_coroutine_threadsafe(opening.__aexit__(None, None, None), loop).result(10)


@pytest.fixture
def become(
    here: Coordinator, loop: asyncio.AbstractEventLoop, away: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[As]:
    """Runs every command from now on as this user."""
    with ExitStack() as held:

        def become(name: str, role: Bearer = "user") -> Client:
            exchange = BridgedTransport(InProcessTransport(build_app(here.commands, People())), loop)
            client = held.enter_context(Client(token=f"{name}:{role}", exchange=exchange))
            monkeypatch.setattr(session, "connect", lambda _settings: client)
            return client

        yield become


def a_file(folder: Path, name: str, *documents: Doc) -> str:
    path = folder / name
    path.write_text("---\n".join(map(text_of, documents)))
    return str(path)


def jobs_of(here: Coordinator) -> list[tuple[str, int]]:
    return [(job.job.user, job.job.tasks) for job in here.leadership.state.jobs.values() if not job.is_over]


@pytest.mark.parametrize("role", ["user", "admin"])
def test_members_join_ones_own_gang_though_another_user_has_one_so_called(
    cli: Cli, here: Coordinator, become: As, away: Path, role: Bearer
):
    group = a_file(away, "group.yaml", a_podgroup("train", 2))
    first, second = (a_file(away, f"p{n}.yaml", a_pod(f"p{n}", gang="train")) for n in (1, 2))
    become("alice", role)
    assert cli("apply", "-f", group, "-f", first).code == 0
    become("bob", role)
    assert cli("apply", "-f", group).code == 0
    become("alice", role)
    said = cli("apply", "-f", second)
    assert said.code == 0, said.err
    assert jobs_of(here) == [("bob", 2), ("alice", 2)]
    drafts = {each.job.user: each.job.draft for each in here.leadership.state.jobs.values()}
    assert (drafts["alice"], drafts["bob"] is None) == (None, False)


def test_an_admin_begins_a_gang_of_his_own_beside_anothers(
    cli: Cli, here: Coordinator, become: As, away: Path
):
    group = a_file(away, "group.yaml", a_podgroup("train", 2))
    for name, role in (("alice", "user"), ("root", "admin")):
        become(name, cast(Bearer, role))
        said = cli("apply", "-f", group)
        assert said.code == 0, said.err
    assert jobs_of(here) == [("alice", 2), ("root", 2)]


class Refusing:
    """A client that asks as usual, and is refused when it amends; `asked` are its applications."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.asked: list[ApplyRequest] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def apply(self, request: ApplyRequest) -> ApplyReply:
        self.asked.append(request)
        if request.amends is not None:
            raise Conflict("it cannot be amended", reason="NotAmendable")
        return self._client.apply(request)


def test_what_was_accepted_before_an_amendment_was_refused_is_listed(
    cli: Cli, here: Coordinator, become: As, away: Path, monkeypatch: pytest.MonkeyPatch
):
    client = become("alice")
    cli("apply", "-f", a_file(away, "group.yaml", a_podgroup("train", 2)))
    (waiting,) = here.leadership.state.jobs
    refusing = Refusing(client)
    monkeypatch.setattr(session, "connect", lambda _settings: refusing)
    both = a_file(away, "both.yaml", a_pod("alone"), a_pod("p1", gang="train"))
    said = cli("apply", "--strict", "-f", both, "-o", "name")
    (new,) = set(here.leadership.state.jobs) - {waiting}
    assert (said.code != 0, said.out.split()) == (True, [str(here.leadership.state.jobs[new].arrival)])
    assert "the listed jobs were accepted" in said.err
    assert "it cannot be amended" in said.err
    assert [(request.amends is not None, request.strict) for request in refusing.asked] == [
        (False, True),
        (True, True),
    ]
