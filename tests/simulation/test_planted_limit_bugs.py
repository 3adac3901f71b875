"""Planted bugs about limits of queues and users: each is seen, by the checker that is meant to see it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

from phalanx.core.model.job import QueueUser
from phalanx.core.model.queues import Asked, Queues
from phalanx.core.model.resources import Request
from tests.simulation.seeds import must_find

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.timeout(300)


def test_a_limit_of_a_user_that_nobody_asks_about_is_found(monkeypatch: Patch):
    limited = Queues._limited

    def of_queues_alone(self: Queues, whose: QueueUser) -> Iterator[tuple[str | None, object, list[int]]]:
        return (each for each in limited(self, whose) if each[0] is None)

    monkeypatch.setattr(Queues, "_limited", of_queues_alone)
    must_find({"queue-limits"}, within=60)


def test_one_who_waits_for_a_limit_that_is_not_reached_is_found(monkeypatch: Patch):
    room = Queues.room

    def one_too_few(
        self: Queues, whose: QueueUser, request: Request, beside: Iterable[Asked] = ()
    ) -> int | None:
        found = room(self, whose, request, beside)
        return max(0, found - 1) if found is not None else None

    monkeypatch.setattr(Queues, "room", one_too_few)
    must_find({"queue-limits"}, within=60)


def test_too_many_that_may_be_submitted_are_found(monkeypatch: Patch):
    monkeypatch.setattr(Queues, "too_many", lambda self, whose, added: None)
    must_find({"queue-limits"}, within=60)
