"""Places for what lasts: a part of them for one user or address, and room for those who run the cluster."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from phalanx.api.server.request import HttpRequest
from phalanx.api.server.roles import Bearer, Identity
from phalanx.api.server.stream_limit import StreamLimit
from phalanx.errors import TooMany
from tests.support.rest_app import a_rest_app, ask


def an_http_request(user: str, role: Bearer = "viewer", address: str = "10.0.0.1") -> HttpRequest:
    async def receive() -> dict[str, object]:
        return {}

    scope = {"method": "GET", "path": "/", "query_string": b"", "headers": [], "client": (address, 4)}
    http_request = HttpRequest(scope, receive)
    http_request.identity = Identity(user, role, "f")
    return http_request


def take(slots: StreamLimit, held: ExitStack, http_request: HttpRequest) -> int:
    """Take places until there are no more for this visitor; how many there were."""
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


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
