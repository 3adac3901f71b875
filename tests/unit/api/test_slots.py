"""Places for what lasts: a part of them for one user or address, and room for those who run the cluster."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from phalanx.api.roles import Bearer, Identity
from phalanx.api.slots import Slots
from phalanx.api.visit import Visit
from phalanx.errors import TooMany
from tests.unit.api.house import a_house, ask


def a_visit(user: str, role: Bearer = "viewer", address: str = "10.0.0.1") -> Visit:
    async def receive() -> dict[str, object]:
        return {}

    scope = {"method": "GET", "path": "/", "query_string": b"", "headers": [], "client": (address, 4)}
    visit = Visit(scope, receive)
    visit.identity = Identity(user, role, "f")
    return visit


def take(slots: Slots, held: ExitStack, visit: Visit) -> int:
    """Take places until there are no more for this visitor; how many there were."""
    for number in range(10_000):
        try:
            held.enter_context(slots.taken(visit))
        except TooMany:
            return number
    raise AssertionError("there is no limit")


def test_one_user_gets_a_quarter_and_everybody_else_still_finds_room():
    slots = Slots(256, "places")
    with ExitStack() as held:
        assert take(slots, held, a_visit("mallory")) == 64
        assert take(slots, held, a_visit("ada", address="10.0.0.2")) == 64
        with pytest.raises(TooMany, match="user mallory has 64 of the 256 places, as many as one user may"):
            held.enter_context(slots.taken(a_visit("mallory", address="10.0.0.3")))
    assert slots.used == 0
    with ExitStack() as held:
        assert take(slots, held, a_visit("mallory")) == 64  # all came back


def test_one_address_gets_half_however_many_users_it_names():
    slots = Slots(256, "places")
    with ExitStack() as held:
        assert sum(take(slots, held, a_visit(user)) for user in "abcd") == 128
        with pytest.raises(TooMany, match=r"address 10\.0\.0\.1 has 128"):
            held.enter_context(slots.taken(a_visit("e")))
        held.enter_context(slots.taken(a_visit("e", address="10.0.0.2")))


def test_on_the_coordinators_own_machine_the_address_says_nothing():
    slots = Slots(256, "places")
    with ExitStack() as held:
        assert sum(take(slots, held, a_visit(user, address="127.0.0.1")) for user in "abcde") == 256


def test_whoever_runs_the_cluster_finds_room_when_all_places_are_taken():
    slots = Slots(256, "places")
    with ExitStack() as held:
        for number, user in enumerate("abcde"):
            take(slots, held, a_visit(user, address=f"10.0.1.{number}"))
        assert slots.used == 256
        assert take(slots, held, a_visit("root", "admin")) == 32


@pytest.mark.anyio
async def test_too_many_questions_of_one_user_are_refused_with_the_limit(anyio_backend):
    answered = await ask(a_house(reads=0).app)
    assert answered.status == 429
    assert b"places for questions" in answered.body


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
