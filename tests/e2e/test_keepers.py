"""A node with several keepers: lanes are spread over them, and the end of one ends only its own tasks."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from phalanx.clock import SteadyClock
from phalanx.core.model.orders import Ended, Started, Stop, Why
from phalanx.core.model.resources import Capacity
from phalanx.runner.cgroups import Cgroups
from phalanx.runner.claim import Tasks, keeper_folder
from phalanx.runner.keepers import places, usual_count
from phalanx.runner.limits import AttemptLimits
from phalanx.runner.loop import RunnerLoop
from phalanx.runner.turn import RunnerEngine
from tests.e2e.test_keeper_shell import PATH, START, Coordinator, a_brief
from tests.support.keeper_node import Node, alive
from tests.support.waiting import until

SLEEP = "echo $$; exec sleep 300"


async def a_shell(folder: Path, count: int) -> RunnerLoop:
    engine = RunnerEngine("n2", "life", "origin", "token", Capacity(8, 0))
    found = places(folder, count, lambda suffix: Cgroups.find(f"several-{os.getpid()}{suffix}"))
    first, *others = (cgroups for _, cgroups in found)
    limits = AttemptLimits(first, engine.capacity, others=others)
    shell = RunnerLoop(engine, folder, SteadyClock(), PATH, 0, found, limits)
    await shell.open()
    return shell


def play(folder: Path, count: int, story: Callable[[Coordinator], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        coordinator = Coordinator(await a_shell(folder, count))
        try:
            await story(coordinator)
        finally:
            await coordinator.shell.close(stop_tasks=True)

    asyncio.run(whole())


def starts(count: int) -> list[Any]:
    return [replace(START, key=("g1", lane, 1), lane=lane, formation=0) for lane in range(count)]


def pids(folder: Path, count: int) -> list[int]:
    """The processes of the tasks, as they printed them."""
    logs = [folder / f"logs/g1/g1.{lane}.1.stdout" for lane in range(count)]
    return [int(log.read_text()) if log.exists() and log.read_text().strip() else 0 for log in logs]


async def running(coordinator: Coordinator, folder: Path, count: int) -> list[int]:
    coordinator.order(a_brief(SLEEP), *starts(count))
    await until(lambda: all(pids(folder, count)))
    await until(lambda: sum(isinstance(each, Started) for each in coordinator.reports()) == count)
    return pids(folder, count)


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_lanes_are_spread_over_the_keepers_evenly(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator) -> None:
        tasks = await running(coordinator, tmp_path, 6)
        keepers = [Node(keeper_folder(tmp_path, number)).keeper_pid() for number in range(3)]
        assert sorted(parent(pid) for pid in tasks) == sorted(2 * keepers)

    play(tmp_path, 3, story)


def test_the_death_of_one_keeper_ends_its_own_tasks_only(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator) -> None:
        tasks = await running(coordinator, tmp_path, 4)
        killed = Node(keeper_folder(tmp_path, 1)).keeper_pid()
        lost = [lane for lane, pid in enumerate(tasks) if parent(pid) == killed]
        os.kill(killed, signal.SIGKILL)

        def ends() -> dict[int, Why]:
            return {each.key[1]: each.exit.why for each in coordinator.reports() if isinstance(each, Ended)}

        await until(lambda: len(ends()) == 2)
        assert ends() == dict.fromkeys(lost, Why.UNKNOWN)
        assert [alive(pid) for pid in tasks] == [lane not in lost for lane in range(4)]
        # What comes next in the lanes of the dead one is started by its successor.
        coordinator.order(*(replace(START, key=("g1", lane, 2), lane=lane, formation=0) for lane in lost))
        await until(lambda: sum(isinstance(each, Started) for each in coordinator.reports()) == 6)

    play(tmp_path, 2, story)


def test_a_runner_with_fewer_keepers_adopts_what_the_others_still_run(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator) -> None:
        tasks = await running(coordinator, tmp_path, 3)
        await coordinator.shell.close(stop_tasks=False)
        coordinator.meet(await a_shell(tmp_path, 1))
        assert {key[1] for key, _ in coordinator.hello.held} == {0, 1, 2}
        coordinator.order(*(Stop(("g1", lane, 1), Why.CANCELLED, 0.1) for lane in range(3)))
        await until(lambda: not any(map(alive, tasks)))
        await until(lambda: sum(isinstance(each, Ended) for each in coordinator.reports()) == 3)

    play(tmp_path, 3, story)


def test_tasks_of_every_keeper_are_known_as_tasks(tmp_path: Path) -> None:
    async def story(coordinator: Coordinator) -> None:
        tasks = await running(coordinator, tmp_path, 2)
        assert all(pid in Tasks(tmp_path) for pid in tasks)
        assert os.getpid() not in Tasks(tmp_path)

    play(tmp_path, 2, story)


def test_nothing_is_left_when_a_runner_with_several_keepers_stops_its_tasks(tmp_path: Path) -> None:
    seen: list[int] = []

    async def story(coordinator: Coordinator) -> None:
        seen.extend(await running(coordinator, tmp_path, 4))

    play(tmp_path, 2, story)
    assert not any(map(alive, seen))
    assert not any(Node(keeper_folder(tmp_path, number)).keeper_pids() for number in range(2))


def test_the_folder_of_a_keeper_that_has_nothing_is_not_opened_again(tmp_path: Path) -> None:
    def opened() -> list[str]:
        found = places(tmp_path, 1, lambda suffix: Cgroups((), "not looked for", False))
        return [str(machine) for machine, _ in found]

    keeper_folder(tmp_path, 1).mkdir(parents=True)
    assert opened() == [str(tmp_path)]
    journal = keeper_folder(tmp_path, 1) / "keeper.journal"
    journal.write_text('["started","g1/0/1/0",4194303,12.5,[0,0],[]]\n')
    assert opened() == [str(tmp_path), str(journal.parent)], "the end of its attempt was not reported"


def test_how_many_keepers_a_machine_has() -> None:
    assert [usual_count(cores) for cores in (1, 2, 3, 4, 16, 128)] == [1, 1, 1, 2, 8, 8]
