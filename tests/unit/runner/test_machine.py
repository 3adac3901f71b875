"""When a keeper counts as not working, and when as working again."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any, cast

from phalanx.runner.log_files import folder_of, log_path
from phalanx.runner.machine import (
    ASK_AFTER,
    ENDS_S,
    GONE,
    GONE_AFTER,
    SILENT,
    SILENT_AFTER,
    KeeperHealth,
    LocalMachine,
)
from phalanx.runner.processes import KeeperFailed, Processes


class Played:
    """A keeper that answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[Any]] = []

    def ping(self) -> asyncio.Future[Any]:
        self.asked.append(asyncio.get_running_loop().create_future())
        return self.asked[-1]


def look(health: KeeperHealth, keeper: Played | None, times: int) -> str:
    for _ in range(times):
        health.look(cast(Processes | None, keeper))
    return health.trouble


def test_a_keeper_that_answers_is_asked_again_and_again() -> None:
    async def body() -> None:
        health, keeper = KeeperHealth(), Played()
        for _ in range(3):
            assert look(health, keeper, ASK_AFTER) == ""
            keeper.asked[-1].set_result(None)
            assert look(health, keeper, 1) == ""
        assert len(keeper.asked) == 3

    asyncio.run(body())


def test_one_that_does_not_answer_is_in_trouble_until_it_does() -> None:
    async def body() -> None:
        health, keeper = KeeperHealth(), Played()
        assert look(health, keeper, ASK_AFTER + SILENT_AFTER) == ""
        assert look(health, keeper, 1) == SILENT
        assert len(keeper.asked) == 1, "a frozen keeper's socket must not fill"
        keeper.asked[-1].set_result(None)
        assert look(health, keeper, 1) == ""

    asyncio.run(body())


def test_a_dead_one_is_in_trouble_only_if_no_other_comes_soon() -> None:
    async def body() -> None:
        health, keeper = KeeperHealth(), Played()
        look(health, keeper, ASK_AFTER)
        assert look(health, None, GONE_AFTER) == ""
        assert look(health, None, 1) == GONE
        health.failed(KeeperFailed("the disk is full"))
        assert "the disk is full" in look(health, None, 5)
        health.works()
        assert look(health, Played(), 1) == ""

    asyncio.run(body())


def test_a_question_that_ended_with_its_keeper_says_nothing_about_the_next() -> None:
    async def body() -> None:
        health, keeper = KeeperHealth(), Played()
        look(health, keeper, ASK_AFTER)
        keeper.asked[-1].cancel()
        other = Played()
        assert look(health, other, ASK_AFTER + SILENT_AFTER) == ""
        assert (len(keeper.asked), len(other.asked)) == (1, 1)

    asyncio.run(body())


def test_one_that_cannot_be_reached_is_past_after_a_lease_and_again_after_another() -> None:
    health = KeeperHealth()
    tries = [health.is_unreached(ENDS_S, 2 * ENDS_S) for _ in range(6)]
    assert tries == [False, False, True, False, False, True]
    health.is_unreached(ENDS_S, ENDS_S)
    health.works()
    assert not health.is_unreached(ENDS_S, ENDS_S)


def test_an_unused_folder_of_artifacts_is_removed(tmp_path: Path):
    """The runner looks itself only where no keeper has: after a crash, or beside one of an older version."""
    machine, (root, job) = LocalMachine(tmp_path), (tmp_path / "logs", "01jcm3k8t0z9x5v7b2n4d6f8gh")
    (root / folder_of(job)).mkdir(parents=True)
    paths = [log_path(root, job, position, 1, "artifacts") for position in range(4)]
    for path in paths[:3]:
        machine.make_artifacts(path)
    (Path(paths[1]) / "model").touch()
    Path(paths[2]).rmdir()
    Path(paths[2]).symlink_to(tmp_path)
    assert [machine.close_artifacts(path) for path in paths] == [False, True, False, False]
    assert [os.path.lexists(path) for path in paths] == [False, True, True, False]
