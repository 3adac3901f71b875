"""The supervisor: what it does when a part dies, and in which order it stops them. No process is started here."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from phalanx.cli.child import Child
from phalanx.cli.supervisor import Stopped, Supervisor
from phalanx.errors import Unavailable
from tests.support.clocks import ManualClock


class FakeChild:
    """Dies when it is stopped; a stubborn one only by SIGKILL."""

    def __init__(self, name: str, logger: list[str], stubborn: bool = False) -> None:
        self.name = name
        self.log = Path(f"/log/{name}")
        self.pid: int | None = None
        self.code: int | None = None
        self._logger = logger
        self._stubborn = stubborn

    def start(self) -> None:
        self._logger.append(f"start {self.name}")
        self.pid, self.code = 1, None

    def reap(self) -> int | None:
        if self.pid is not None and self.code is not None:
            self.pid = None
            return self.code
        return None

    def send(self, number: signal.Signals) -> None:
        self._logger.append(f"{number.name} {self.name}")
        if not self._stubborn or number == signal.SIGKILL:
            self.code = 0

    def last_words(self) -> str:
        return f"the last words of {self.name}"


class ScriptedSupervisor(Supervisor):
    """A supervisor whose signals come from a script; waiting moves the clock."""

    def __init__(self, coordinator: FakeChild, runners: list[FakeChild], clock: ManualClock) -> None:
        super().__init__(cast(Child, coordinator), cast(list[Child], runners), clock)
        self.fake_clock = clock
        self.script: list[Callable[[], int | None]] = []
        self.waits: list[float | None] = []

    def _waited(self, seconds: float | None) -> int | None:
        self.waits.append(seconds)
        if self.script:
            return self.script.pop(0)()
        return signal.SIGTERM if seconds is None else self.pause_over()

    def pause_over(self) -> int | None:
        """The wait passes without a signal."""
        self.fake_clock.at += self.waits[-1] or 0.0
        return None


@pytest.fixture
def logger() -> list[str]:
    return []


@pytest.fixture
def supervisor(logger: list[str], monkeypatch: pytest.MonkeyPatch) -> ScriptedSupervisor:
    monkeypatch.setattr("phalanx.cli.supervisor._kill", lambda cs: [c.send(signal.SIGKILL) for c in cs])
    return ScriptedSupervisor(
        FakeChild("coordinator", logger), [FakeChild("n1", logger), FakeChild("n2", logger)], ManualClock(0.0)
    )


def dies(child: Child, code: int) -> Callable[[], int]:
    def play() -> int:
        cast(FakeChild, child).code = code
        return signal.SIGCHLD

    return play


def test_it_starts_the_coordinator_first_and_stops_it_last(supervisor: ScriptedSupervisor, logger: list[str]):
    supervisor.start()
    supervisor.watch()
    supervisor.stop()
    assert logger == [
        *("start coordinator", "start n1", "start n2"),
        *("SIGTERM n1", "SIGTERM n2", "SIGTERM coordinator"),
    ]


def test_what_dies_is_started_again_after_ever_longer_pauses(
    supervisor: ScriptedSupervisor, logger: list[str]
):
    supervisor.start()
    for _ in range(7):  # It dies, the pause passes, it starts, and it dies again.
        supervisor.script += [dies(supervisor._coordinator, -9), supervisor.pause_over]
    supervisor.watch()
    assert logger.count("start coordinator") == 8
    assert [wait for wait in supervisor.waits if wait] == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])


def test_after_a_healthy_life_the_pause_is_short_again(supervisor: ScriptedSupervisor):
    coordinator = supervisor._coordinator
    supervisor.start()
    supervisor._plan_restart(coordinator, 1)
    supervisor._plan_restart(coordinator, 1)
    assert supervisor._due[coordinator] == 0.4
    supervisor.fake_clock.at = 60.0
    supervisor._plan_restart(coordinator, 1)
    assert supervisor._due[coordinator] == 60.2


def test_the_restart_is_told(supervisor: ScriptedSupervisor, capsys: pytest.CaptureFixture[str]):
    supervisor.start()
    supervisor._plan_restart(supervisor._coordinator, -9)
    assert capsys.readouterr().err == (
        "coordinator exited with code -9, restarting in 0.2 s; see /log/coordinator\n"
    )


def test_ready_when_all_say_so(supervisor: ScriptedSupervisor):
    answers = iter([False, False, True])
    supervisor.start()
    supervisor.await_ready(lambda: next(answers))
    assert supervisor.waits == [0.02, 0.02]


def test_a_part_that_dies_at_its_start_ends_it(supervisor: ScriptedSupervisor):
    supervisor.start()
    supervisor.script = [dies(supervisor._coordinator, 1)]
    with pytest.raises(Unavailable, match="coordinator exited with code 1 while starting:\nthe last words"):
        supervisor.await_ready(lambda: False)


def test_it_does_not_wait_for_ever(supervisor: ScriptedSupervisor):
    supervisor.start()
    with pytest.raises(Unavailable, match="not ready within 300 s"):
        supervisor.await_ready(lambda: False)


def test_ctrl_c_before_it_is_ready(supervisor: ScriptedSupervisor):
    supervisor.start()
    supervisor.script = [lambda: signal.SIGINT]
    with pytest.raises(Stopped):
        supervisor.await_ready(lambda: False)


def test_who_does_not_stop_in_time_is_killed(logger: list[str], supervisor: ScriptedSupervisor):
    stubborn = FakeChild("n1", logger, stubborn=True)
    supervisor._runners = [cast(Child, stubborn)]
    supervisor.start()
    supervisor.stop()
    assert logger[-3:] == ["SIGTERM n1", "SIGKILL n1", "SIGTERM coordinator"]
    assert supervisor.fake_clock.at == 20.0


def test_a_second_ctrl_c_is_impatience(logger: list[str], supervisor: ScriptedSupervisor):
    stubborn = FakeChild("n1", logger, stubborn=True)
    supervisor._runners = [cast(Child, stubborn)]
    supervisor.start()
    supervisor.script = [lambda: signal.SIGINT]
    supervisor.stop()
    assert "SIGKILL n1" in logger
    assert supervisor.fake_clock.at == 0.0
