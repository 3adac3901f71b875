"""Answers that open pages share: made once, for those who may see the same, and made anew soon."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from phalanx.api.schema.cluster import NodeView
from phalanx.api.schema.jobs import WhyReply
from phalanx.api.schema.pages import JobRows, JobRowsQuery, OverviewView, TimesQuery, TimesView
from phalanx.api.schema.submission import SubmitRequest
from phalanx.api.server.app import build_app
from phalanx.api.server.auth import Bearer, Identity
from phalanx.api.server.messages import App, Response, json_reply
from phalanx.api.server.routes.table import ROUTES
from phalanx.api.server.shared_answers import ANSWERS_MAX, KEEP_S_MAX, KEEP_S_MIN, SHARE, SharedAnswers
from phalanx.core.explain.change import ADMIN, Asker
from phalanx.errors import Unavailable
from tests.support.clocks import ManualClock
from tests.support.fake_commands import FakeCommands
from tests.support.rest_app import RawResponse, ask, ask_raw
from tests.support.waiting import pause_task

pytestmark = pytest.mark.anyio
SHARED_ROUTES = [route for route in ROUTES if route.sees is not None]
ASKERS: dict[str, tuple[str, Bearer]] = {
    "ada": ("ada", "user"),
    "bob": ("bob", "user"),
    "vera": ("vera", "viewer"),
    "olga": ("olga", "operator"),
    "root": ("root", "admin"),
    "ada-operates": ("ada", "operator"),
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Maker:
    """Makes an answer when it is let go, and counts how often it was asked to."""

    def __init__(self, clock: ManualClock, took_s: float = 0.0) -> None:
        self.clock, self.took_s = clock, took_s
        self.made = 0
        self.let_go = asyncio.Event()
        self.let_go.set()

    async def __call__(self) -> Response:
        self.made += 1
        number = self.made
        await self.let_go.wait()
        self.clock.at += self.took_s
        return json_reply({"number": number})


def some_answers(clock: ManualClock, revision: int = 7) -> SharedAnswers:
    return SharedAnswers(clock, lambda: revision)


async def test_an_answer_is_made_once_for_all_who_ask_while_it_is_being_made():
    clock = ManualClock()
    answers, make = some_answers(clock), Maker(clock)
    make.let_go.clear()
    asked = [asyncio.create_task(answers.answer("key", b"", make)) for _ in range(20)]
    other = asyncio.create_task(answers.answer("other", b"", make))
    await pause_task()
    make.let_go.set()
    assert {(await each).body for each in asked} == {b'{"number":1}'}
    assert (await other).body == b'{"number":2}'


@pytest.mark.parametrize(
    ("took_s", "kept_s"), [(0.001, KEEP_S_MIN), (0.02, 0.02 * SHARE), (1.0, KEEP_S_MAX)], ids=str
)  # fmt: skip
async def test_an_answer_is_kept_for_as_long_as_its_cost_asks_for(took_s: float, kept_s: float):
    clock = ManualClock()
    answers, make = some_answers(clock), Maker(clock, took_s)
    await answers.answer("key", b"", make)
    clock.at += kept_s - 0.01
    await answers.answer("key", b"", make)
    assert make.made == 1
    clock.at += 0.02
    await answers.answer("key", b"", make)
    assert make.made == 2


async def test_an_answer_names_the_revision_it_was_begun_at_and_is_not_sent_to_a_page_that_has_it():
    clock = ManualClock()
    answers, make = some_answers(clock, revision=41), Maker(clock)
    first = dict((await answers.answer("key", b"", make)).headers)
    assert first[b"phalanx-revision"] == b"41"
    same = await answers.answer("key", first[b"etag"], make)
    assert (same.status, same.body) == (304, b"")
    assert dict(same.headers) == {
        b"cache-control": b"no-store", b"etag": first[b"etag"], b"phalanx-revision": b"41",
    }  # fmt: skip
    clock.at += KEEP_S_MAX
    assert (await answers.answer("key", first[b"etag"], make)).body == b'{"number":2}'


async def test_an_error_goes_to_all_who_wait_for_the_answer_and_is_not_kept():
    clock = ManualClock()
    answers, make = some_answers(clock), Maker(clock)
    let_go = asyncio.Event()

    async def fail() -> Response:
        await let_go.wait()
        raise Unavailable("the log is being read")

    asked = [asyncio.create_task(answers.answer("key", b"", fail)) for _ in range(3)]
    await pause_task()
    let_go.set()
    assert [type(each) for each in await asyncio.gather(*asked, return_exceptions=True)] == [Unavailable] * 3
    assert (await answers.answer("key", b"", make)).status == 200


async def test_a_page_that_is_closed_does_not_take_the_answer_from_the_others():
    clock = ManualClock()
    answers, make = some_answers(clock), Maker(clock)
    make.let_go.clear()
    first = asyncio.create_task(answers.answer("key", b"", make))
    await pause_task()
    second = asyncio.create_task(answers.answer("key", b"", make))
    await pause_task()
    first.cancel()
    await pause_task()
    make.let_go.set()
    assert (await second).body == b'{"number":1}'


async def test_answers_are_forgotten_when_they_are_old_or_too_many():
    clock = ManualClock()
    answers, make = some_answers(clock), Maker(clock)
    for number in range(2 * ANSWERS_MAX):
        await answers.answer(number, b"", make)
    assert len(answers._answers) <= ANSWERS_MAX
    clock.at += KEEP_S_MAX
    await answers.answer("key", b"", make)
    assert list(answers._answers) == ["key"]
    assert answers._bytes == len(b'{"number":513}')


class Askers:
    """Accepts the name of an asker as the token."""

    def accepts_user(self, token: str) -> Identity | None:
        return Identity(*ASKERS[token], token) if token in ASKERS else None


class Telling(FakeCommands):
    """Answers that differ by whatever they may depend on, and count how often they were made."""

    def __init__(self) -> None:
        super().__init__()
        self.made = 0

    async def why(self, id: str, asker: Asker = ADMIN, *, of_waiting: bool = False) -> WhyReply:
        self.made += 1
        reply = await super().why(id, asker)
        reply.dominant.text = f"{asker} {of_waiting}"
        return reply

    async def job_rows(self, query: JobRowsQuery, user: str) -> JobRows:
        self.made += 1
        rows = await super().job_rows(query, user)
        rows.total = len(user) if query.mine else 0
        return rows

    async def named(self, name: str, user: str, *, of_all: bool, kind: str = "job") -> str:
        if name == "lab/pod":
            return f"01hzzzzzzzzzzzzzzzzzzzz{'bob' if of_all else user[:3]}"
        return f"01hzzzzzzzzzzzzzzzzzzzz{user[:3]}" if name == "train" else name

    async def times(self, query: TimesQuery) -> TimesView:
        self.made += 1
        view = await super().times(query)
        view.until = float(sum(map(ord, query.job or "")))
        return view

    async def overview(self) -> OverviewView:
        self.made += 1
        return await super().overview()

    async def nodes(self) -> list[NodeView]:
        self.made += 1
        return await super().nodes()


async def an_app() -> tuple[App, Telling, str]:
    cluster = Telling()
    job = (await cluster.submit(SubmitRequest(command=["true"], name="train"), "ada")).task_ids[0]
    return build_app(cluster, Askers()), cluster, job


def asking(app: App) -> Callable[..., Awaitable[RawResponse]]:
    async def asked(
        who: str, path: str, query: bytes = b"", *, shared: bool = True, etag: str = ""
    ) -> RawResponse:
        headers = {
            "authorization": f"Bearer {who}",
            "phalanx-read": "shared" if shared else "",
            "if-none-match": etag,
        }
        return await ask(app, path=path, query=query, headers=headers)

    return asked


QUERIES = {"/v1/pages/jobs": [b"", b"mine=true"], "/v1/pages/times": [b"", b"job=train", b"job=lab%2Fpod"]}


@pytest.mark.parametrize("route", SHARED_ROUTES, ids=lambda route: route.path)
async def test_nobody_is_given_what_was_made_for_one_who_may_see_more_or_something_else(route):
    app, _, job = await an_app()
    asked = asking(app)
    path = route.path.replace("{id}", job)
    for query in QUERIES.get(route.path, [b""]):
        own = {who: (await asked(who, path, query, shared=False)).body for who in ASKERS}
        for _ in range(2):
            for who in ASKERS:
                assert (await asked(who, path, query)).body == own[who], (who, query)


async def test_one_who_may_not_ask_is_refused_though_the_answer_is_at_hand():
    app, _, _ = await an_app()
    asked = asking(app)
    first = await asked("root", "/v1/pages/overview")
    assert first.status == 200
    assert (await asked("mallory", "/v1/pages/overview")).status == 401
    assert (await asked("mallory", "/v1/pages/overview", etag=first.headers["etag"])).status == 401


async def test_only_a_page_that_says_so_is_given_what_was_made_for_another():
    app, cluster, _ = await an_app()
    asked = asking(app)
    first = await asked("ada", "/v1/nodes")
    assert (await asked("bob", "/v1/nodes", etag=first.headers["etag"])).status == 304
    assert cluster.made == 1
    await cluster.drain("n1", "a fan is loud", evict=False)
    assert b"a fan is loud" in (await asked("ada", "/v1/nodes", shared=False)).body


async def test_an_explanation_is_of_the_part_that_waits_if_that_is_asked_for():
    app, _, job = await an_app()
    asked = asking(app)
    assert "True" in (await asked("ada", f"/v1/jobs/{job}/why", b"waiting=true")).json()["dominant"]["text"]
    assert "False" in (await asked("ada", f"/v1/jobs/{job}/why")).json()["dominant"]["text"]


async def test_another_question_has_another_answer():
    app, cluster, job = await an_app()
    asked = asking(app)
    other = (await cluster.submit(SubmitRequest(command=["true"]), "ada")).task_ids[0]
    for offset in (0, 100):
        assert (await asked("ada", "/v1/pages/jobs", b"offset=%d" % offset)).json()["offset"] == offset
    assert "layers" in (await asked("ada", "/v1/pages/map")).json()
    assert "alarms" in (await asked("ada", "/v1/pages/overview")).json()
    for id in (job, other):
        assert (await asked("ada", f"/v1/jobs/{id}/states")).json()["id"] == id


async def test_nobody_waits_for_the_body_of_another():
    app, _, job = await an_app()
    headers = [
        (b"host", b"localhost:7433"), (b"authorization", b"Bearer ada"), (b"phalanx-read", b"shared"),
        (b"content-length", b"9"),
    ]  # fmt: skip
    slow = asyncio.create_task(ask_raw(app, "GET", f"/v1/jobs/{job}/why", headers, b"", pieces=[]))
    await pause_task()
    async with asyncio.timeout(5.0):
        assert (await asking(app)("ada", f"/v1/jobs/{job}/why")).status == 200
    assert not slow.done()
    slow.cancel()


def test_what_looks_at_everything_that_waits_is_among_the_heavy_questions():
    heavy = {(route.method, route.path) for route in ROUTES if route.is_heavy}
    assert {("POST", "/v1/plan"), ("GET", "/v1/jobs/{id}/plan"), ("GET", "/v1/jobs/{id}/why")} <= heavy
