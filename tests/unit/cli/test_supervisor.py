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


class FakeClock:
    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time


class FakeChild:
    """Dies when told to; a stubborn one only by SIGKILL."""

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


class Played(Supervisor):
    """A supervisor whose signals come from a script; waiting moves the clock."""

    def __init__(self, coordinator: FakeChild, runners: list[FakeChild], clock: FakeClock) -> None:
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
        """The wait that was asked for passes, and no signal came."""
        self.fake_clock.time += self.waits[-1] or 0.0
        return None


@pytest.fixture
def logger() -> list[str]:
    return []


@pytest.fixture
def played(logger: list[str], monkeypatch: pytest.MonkeyPatch) -> Played:
    monkeypatch.setattr("phalanx.cli.supervisor._kill", lambda cs: [c.send(signal.SIGKILL) for c in cs])
    return Played(
        FakeChild("coordinator", logger), [FakeChild("n1", logger), FakeChild("n2", logger)], FakeClock()
    )


def dies(child: Child, code: int) -> Callable[[], int]:
    def play() -> int:
        cast(FakeChild, child).code = code
        return signal.SIGCHLD

    return play


def test_it_starts_the_coordinator_first_and_stops_it_last(played: Played, logger: list[str]):
    played.start()
    played.watch()
    played.stop()
    assert logger == [
        *("start coordinator", "start n1", "start n2"),
        *("SIGTERM n1", "SIGTERM n2", "SIGTERM coordinator"),
    ]


def test_what_dies_is_started_again_after_ever_longer_pauses(played: Played, logger: list[str]):
    played.start()
    for _ in range(7):  # It dies, the pause passes, it starts, and it dies again.
        played.script += [dies(played._coordinator, -9), played.pause_over]
    played.watch()
    assert logger.count("start coordinator") == 8
    assert [wait for wait in played.waits if wait] == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0])


def test_after_a_healthy_life_the_pause_is_short_again(played: Played):
    coordinator = played._coordinator
    played.start()
    played._plan_restart(coordinator, 1)
    played._plan_restart(coordinator, 1)
    assert played._due[coordinator] == 0.4
    played.fake_clock.time = 60.0
    played._plan_restart(coordinator, 1)
    assert played._due[coordinator] == 60.2


def test_the_restart_is_told(played: Played, capsys: pytest.CaptureFixture[str]):
    played.start()
    played._plan_restart(played._coordinator, -9)
    assert capsys.readouterr().err == (
        "coordinator ended with code -9, starts again in 0.2 s; see /log/coordinator\n"
    )


def test_ready_when_all_say_so(played: Played):
    answers = iter([False, False, True])
    played.start()
    played.await_ready(lambda: next(answers))
    assert played.waits == [0.02, 0.02]


def test_a_part_that_dies_at_its_start_ends_it(played: Played):
    played.start()
    played.script = [dies(played._coordinator, 1)]
    with pytest.raises(Unavailable, match="coordinator ended with code 1 at its start:\nthe last words"):
        played.await_ready(lambda: False)


def test_it_does_not_wait_for_ever(played: Played):
    played.start()
    with pytest.raises(Unavailable, match="not ready within 300 s"):
        played.await_ready(lambda: False)


def test_ctrl_c_before_it_is_ready(played: Played):
    played.start()
    played.script = [lambda: signal.SIGINT]
    with pytest.raises(Stopped):
        played.await_ready(lambda: False)


def test_who_does_not_stop_in_time_is_killed(logger: list[str], played: Played):
    stubborn = FakeChild("n1", logger, stubborn=True)
    played._runners = [cast(Child, stubborn)]
    played.start()
    played.stop()
    assert logger[-3:] == ["SIGTERM n1", "SIGKILL n1", "SIGTERM coordinator"]
    assert played.fake_clock.time == 20.0


def test_a_second_ctrl_c_is_impatience(logger: list[str], played: Played):
    stubborn = FakeChild("n1", logger, stubborn=True)
    played._runners = [cast(Child, stubborn)]
    played.start()
    played.script = [lambda: signal.SIGINT]
    played.stop()
    assert "SIGKILL n1" in logger
    assert played.fake_clock.time == 0.0
