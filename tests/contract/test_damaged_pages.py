"""Bits that flip anywhere in the database, in pages and records: a typed error and never a traceback (XW8)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from phalanx.clock import SteadyClock
from phalanx.coordinator.damage import AskedStore
from phalanx.coordinator.leadership import Leadership, LeadershipConfig
from phalanx.errors import PhalanxError, Unavailable
from phalanx.store.check import check_store
from phalanx.store.protocol import Candidate, StoreDamaged, StoreError
from phalanx.store.repair import survey
from phalanx.store.sqlite.store import SqliteStore
from tests.contract.logs import Lived
from tests.support.candidates import Listener

SEEDS = 80


@pytest.fixture(scope="module")
def lived() -> Lived:
    return Lived()


@pytest.fixture(scope="module")
def whole(lived: Lived, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "store.db"

    async def kept() -> None:
        store = SqliteStore(path)
        await lived.keep(store)
        await store.close()

    asyncio.run(kept())
    return path.read_bytes()


def flipped(body: bytes, seed: int) -> bytes:
    dice, damaged = random.Random(seed), bytearray(body)
    for _ in range(dice.choice((1, 5, 30, 300))):
        damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
    return bytes(damaged)


def test_whatever_is_asked_of_a_damaged_file_there_is_no_traceback(
    whole: bytes, lived: Lived, tmp_path: Path
):
    refused = 0
    for seed in range(SEEDS):
        path = tmp_path / f"{seed}.db"
        path.write_bytes(flipped(whole, seed))
        refused += asyncio.run(_everything(path, lived))
    assert refused > SEEDS, "the damage was met"


async def _everything(path: Path, lived: Lived) -> int:
    """Ask everything that a coordinator, user or operator asks; returns how often a typed refusal came."""
    refused = 0
    for read_only in (True, False):
        try:
            store = SqliteStore(path, read_only=read_only, durable=False)
        except StoreError:
            refused += 1
            continue
        asked = AskedStore(store)
        member = Leadership(store, Candidate("a"), LeadershipConfig(), SteadyClock(), Listener())
        questions: list[Callable[[], Awaitable[object]]] = [
            partial(check_store, store, "it"),
            partial(survey, store, "it"),
            partial(store.past, None, 100),
            *([] if read_only else [member.open]),
            *(partial(asked.story, job.id, 0, 100) for job in lived.jobs),
            *(partial(asked.history, job.id) for job in lived.jobs),
        ]
        for question in questions:
            try:
                await question()
            except (StoreError, PhalanxError):
                refused += 1
        await store.close()
    return refused


async def _story_of(store: object, id: str) -> None:
    await store.story(id, 0, 100)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("error", "reason"), [(StoreDamaged("page 7"), "StoreDamaged"), (StoreError("x"), "StoreUnavailable")]
)
def test_a_question_that_meets_damage_is_told_so(
    error: StoreError, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    store = SqliteStore(tmp_path / "store.db")

    async def broken(*_: object) -> None:
        raise error

    monkeypatch.setattr(store, "story", broken)
    with pytest.raises(Unavailable, match=str(error)) as told:
        asyncio.run(_story_of(AskedStore(store), "j1"))
    assert told.value.reason == reason
