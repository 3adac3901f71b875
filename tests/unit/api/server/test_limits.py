"""Limits: costly requests take turns, places are shared fairly, strangers' connections give way."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

import pytest

from phalanx.api.schema.attempts import AttemptView
from phalanx.api.schema.jobs import WhyReply
from phalanx.api.schema.submission import SubmitRequest
from phalanx.api.server.app import build_app
from phalanx.api.server.auth import Bearer, Identity, Tokens
from phalanx.api.server.limits import ByteRate, ConcurrencyLimit, ServerLimits, StreamLimit, Unauthenticated
from phalanx.api.server.messages import HttpRequest
from phalanx.core.explain.change import ADMIN, Asker
from phalanx.errors import TooMany
from tests.support.fake_commands import FakeCommands
from tests.support.rest_app import RawResponse, a_rest_app, ask
from tests.support.waiting import pause_task

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def _stay(limit: ConcurrencyLimit, inside: list[int], number: int, gate: asyncio.Event) -> None:
    async with limit.passed():
        inside.append(number)
        await gate.wait()


async def test_the_next_one_enters_when_one_leaves_first_come_first_served():
    inside: list[int] = []
    limit, gates = ConcurrencyLimit(1, 10, 60.0), [asyncio.Event() for _ in range(3)]
    tasks = [asyncio.create_task(_stay(limit, inside, at, gate)) for at, gate in enumerate(gates)]
    await pause_task()
    assert inside == [0]
    gates[0].set()
    await tasks[0]
    await pause_task()
    assert inside == [0, 1]
    gates[1].set()
    gates[2].set()
    await asyncio.gather(*tasks)
    assert inside == [0, 1, 2]


async def test_who_finds_no_place_in_time_is_told_to_come_again():
    limit, gate = ConcurrencyLimit(1, 10, 0.01), asyncio.Event()
    first = asyncio.create_task(_stay(limit, [], 0, gate))
    await pause_task()
    with pytest.raises(TooMany) as caught:
        async with limit.passed():
            raise AssertionError("there was no place")
    assert (caught.value.reason, caught.value.retry_after_s) == ("TooManySubmits", 1.0)
    gate.set()
    await first
    async with limit.passed():
        pass


async def test_a_line_that_is_full_refuses_at_once():
    limit, gate = ConcurrencyLimit(1, 1, 60.0), asyncio.Event()
    tasks = [asyncio.create_task(_stay(limit, [], at, gate)) for at in range(2)]
    await pause_task()
    with pytest.raises(TooMany):
        async with limit.passed():
            raise AssertionError("there was no place")
    gate.set()
    await asyncio.gather(*tasks)


async def test_one_who_gives_up_in_line_leaves_no_hole():
    inside: list[int] = []
    limit, gate = ConcurrencyLimit(1, 10, 60.0), asyncio.Event()
    tasks = [asyncio.create_task(_stay(limit, inside, at, gate)) for at in range(3)]
    await pause_task()
    tasks[1].cancel()
    await pause_task()
    gate.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert inside == [0, 2]
    async with limit.passed():
        pass


async def test_one_who_gives_up_at_the_moment_of_its_turn_hands_the_place_on():
    inside: list[int] = []
    limit, gate = ConcurrencyLimit(1, 10, 60.0), asyncio.Event()
    tasks = [asyncio.create_task(_stay(limit, inside, at, gate)) for at in range(3)]
    await pause_task()
    gate.set()
    await pause_task()  # the first one leaves, the second one is called
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert 2 in inside
    async with limit.passed():
        pass


async def test_one_user_cannot_take_every_place_nor_the_whole_line():
    limit, gate = ConcurrencyLimit(4, 8, 60.0), asyncio.Event()
    inside: list[int] = []

    async def stay(user: str, number: int) -> None:
        async with limit.passed(user):
            inside.append(number)
            await gate.wait()

    greedy = [asyncio.create_task(stay("mallory", number)) for number in range(5)]
    await pause_task()
    assert inside == [0, 1, 2]  # three quarters of four, and a quarter of the line
    with pytest.raises(TooMany):
        async with limit.passed("mallory"):
            raise AssertionError("there was no place")
    async with asyncio.timeout(1), limit.passed("ada"):  # at once
        pass
    gate.set()
    await asyncio.gather(*greedy)


async def test_users_in_line_take_turns():
    limit, inside = ConcurrencyLimit(1, 100, 60.0), list[str]()

    async def pass_through(user: str) -> None:
        async with limit.passed(user):
            inside.append(user)

    async with limit.passed("somebody"):
        tasks = [asyncio.create_task(pass_through("mallory")) for _ in range(20)]
        await pause_task()
        tasks.append(asyncio.create_task(pass_through("ada")))
        await pause_task()
    await asyncio.gather(*tasks)
    assert inside.index("ada") <= 1
    assert inside.count("mallory") == 20


async def test_a_place_that_rests_is_free_only_after_a_while():
    limit = ConcurrencyLimit(1, 10, 60.0, rest=20.0)
    loop = asyncio.get_running_loop()
    async with limit.passed():
        await asyncio.wait({loop.create_future()}, timeout=0.02)
    left = loop.time()
    async with asyncio.timeout(10), limit.passed():
        assert loop.time() - left >= 0.2


def an_http_request(user: str, role: Bearer = "viewer", address: str = "10.0.0.1") -> HttpRequest:
    async def receive() -> dict[str, object]:
        return {}

    scope = {"method": "GET", "path": "/", "query_string": b"", "headers": [], "client": (address, 4)}
    http_request = HttpRequest(scope, receive)
    http_request.identity = Identity(user, role, "f")
    return http_request


def take(slots: StreamLimit, held: ExitStack, http_request: HttpRequest) -> int:
    """Take places until there are no more for this user; returns how many there were."""
    for number in range(10_000):
        try:
            held.enter_context(slots.taken(http_request))
        except TooMany:
            return number
    raise AssertionError("there is no limit")


def test_one_user_gets_a_quarter_and_everybody_else_still_finds_room():
    slots = StreamLimit(256, "places")
    with ExitStack() as held:
        assert take(slots, held, an_http_request("mallory")) == 64
        assert take(slots, held, an_http_request("ada", address="10.0.0.2")) == 64
        with pytest.raises(TooMany, match="user mallory has 64 of the 256 places, as many as one user may"):
            held.enter_context(slots.taken(an_http_request("mallory", address="10.0.0.3")))
    assert slots.used == 0
    with ExitStack() as held:
        assert take(slots, held, an_http_request("mallory")) == 64  # all came back


def test_one_address_gets_half_however_many_users_it_names():
    slots = StreamLimit(256, "places")
    with ExitStack() as held:
        assert sum(take(slots, held, an_http_request(user)) for user in "abcd") == 128
        with pytest.raises(TooMany, match=r"address 10\.0\.0\.1 has 128"):
            held.enter_context(slots.taken(an_http_request("e")))
        held.enter_context(slots.taken(an_http_request("e", address="10.0.0.2")))


def test_on_the_coordinators_own_machine_the_address_says_nothing():
    slots = StreamLimit(256, "places")
    with ExitStack() as held:
        assert sum(take(slots, held, an_http_request(user, address="127.0.0.1")) for user in "abcde") == 256


def test_whoever_runs_the_cluster_finds_room_when_all_places_are_taken():
    slots = StreamLimit(256, "places")
    with ExitStack() as held:
        for number, user in enumerate("abcde"):
            take(slots, held, an_http_request(user, address=f"10.0.1.{number}"))
        assert slots.used == 256
        assert take(slots, held, an_http_request("root", "admin")) == 32


@pytest.mark.anyio
async def test_too_many_questions_of_one_user_are_refused_with_the_limit(anyio_backend):
    answered = await ask(a_rest_app(reads=0).app)
    assert answered.status == 429
    assert b"places for questions" in answered.body


def test_the_oldest_of_the_address_that_has_most_goes():
    unauthenticated: Unauthenticated[int] = Unauthenticated(4)
    assert [
        unauthenticated.add("there", 1),
        *(unauthenticated.add("here", number) for number in (2, 3, 4)),
    ] == [None] * 4
    assert unauthenticated.add("here", 5) == 2
    assert unauthenticated.add("elsewhere", 6) == 3
    assert list(unauthenticated) == [1, 4, 5, 6]


def test_who_is_known_or_gone_is_no_longer_counted():
    unauthenticated: Unauthenticated[int] = Unauthenticated(2)
    unauthenticated.add("here", 1)
    unauthenticated.remove(1)
    unauthenticated.remove(1)
    assert unauthenticated.add("here", 2) is None
    assert unauthenticated.add("here", 3) is None
    assert len(unauthenticated) == 2 and 1 not in unauthenticated


class SlowToExplain(FakeCommands):
    """A cluster whose explanations end when they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.began: asyncio.Queue[str] = asyncio.Queue()
        self.let_go = asyncio.Event()

    async def why(self, id: str, asker: Asker = ADMIN, *, of_waiting: bool = False) -> WhyReply:
        self.began.put_nowait(asker.user)
        await self.let_go.wait()
        return await super().why(id, asker)


@pytest.mark.parametrize("noun", ["jobs", "tasks"])
async def test_explanations_of_one_user_wait_for_each_other_and_another_users_go_between(noun: str):
    cluster = SlowToExplain()
    users = [(name, f"phx_{name}") for name in ("ada", "bob")]
    app = build_app(cluster, Tokens(users), limits=ServerLimits(large_rest=0.0))
    job = (await cluster.submit(SubmitRequest(command=["true"]), "ada")).task_ids[0]

    def why(user: str) -> asyncio.Task[RawResponse]:
        return asyncio.create_task(
            ask(app, "GET", f"/v1/{noun}/{job}/why", headers={"authorization": f"Bearer phx_{user}"})
        )

    asked = [why("ada") for _ in range(8)]
    first = await cluster.began.get()
    asked.append(why("bob"))
    assert (first, await cluster.began.get()) == ("ada", "bob")
    assert cluster.began.empty()
    cluster.let_go.set()
    assert [(await each).status for each in asked] == [200] * 9


class SlowToRead(FakeCommands):
    """A cluster that reads stories for as long as it is not let go."""

    def __init__(self) -> None:
        super().__init__()
        self.began = 0
        self.let_go = asyncio.Event()

    async def attempts(self, id: str) -> list[AttemptView]:
        self.began += 1
        await self.let_go.wait()
        return []


async def test_attempts_which_are_read_from_the_story_of_a_whole_job_take_turns():
    cluster = SlowToRead()
    app = build_app(cluster, Tokens([("ada", "phx_ada")]), limits=ServerLimits(submits=1))
    job = (await cluster.submit(SubmitRequest(command=["true"]), "ada")).task_ids[0]
    headers = {"authorization": "Bearer phx_ada"}
    asked = [
        asyncio.create_task(ask(app, "GET", f"/v1/tasks/{job}/attempts", headers=headers)) for _ in range(3)
    ]
    await pause_task()
    assert cluster.began == 1
    cluster.let_go.set()
    assert [(await each).status for each in asked] == [200] * 3
    assert cluster.began == 3


def test_bytes_of_one_user_have_a_rate_and_so_have_those_of_all():
    rate = ByteRate(100.0, burst_s=1.0)
    assert rate.pause_s("ada", 100, now=0.0) == 0.0
    assert rate.pause_s("ada", 100, now=0.0) == 1.0
    assert rate.pause_s("bob", 100, now=0.0) == 0.0  # another's are not slower for that
    assert rate.pause_s("eve", 100, now=0.0) == pytest.approx(1 / 3)  # but all together have a rate, too
    assert rate.pause_s("ada", 100, now=10.0) == 0.0
    for number in range(1000):
        rate.pause_s(f"user-{number}", 1, now=20.0 + number)
    assert len(rate._used_until) < 600
