"""What a task puts in place of the runner's own files neither blocks it nor keeps it from starting or stopping."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from phalanx.runner import claim, state_files, stopping
from phalanx.runner.stopping import StopOutcome, StopRequest

NAMES = (claim.LOCK, stopping.REQUEST, stopping.OUTCOME)
WORD = StopOutcome(3, False, True, 12.0)


def a_folder(path: Path) -> None:
    path.mkdir()
    (path / "inside").write_text("x")


def a_link(path: Path) -> None:
    path.symlink_to("/dev/zero")


def endless(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


PLANTED: tuple[Callable[[Path], None], ...] = (a_folder, os.mkfifo, a_link, endless)


def in_time(work: Callable[[], None]) -> None:
    """A process that opens a FIFO would wait for ever."""
    failed: list[BaseException] = []

    def body() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join(10.0)
    assert not thread.is_alive(), "it waits"
    assert failed == []


@pytest.mark.parametrize("plant", PLANTED)
def test_a_runner_starts_and_stops_whatever_has_the_names_of_its_files(
    tmp_path: Path, plant: Callable[[Path], None]
) -> None:
    for name in NAMES:
        plant(tmp_path / name)
        plant(tmp_path / f"{name}.new")

    def story() -> None:
        assert stopping.runner_of(tmp_path) is None
        assert stopping.read_outcome(tmp_path) is None
        with stopping.on_duty(tmp_path):
            assert claim.runners(tmp_path) == [os.getpid()]
            assert stopping.asked(tmp_path) is None
            stopping.write_outcome(tmp_path, WORD)
            assert stopping.read_outcome(tmp_path) == WORD
        assert stopping.runner_of(tmp_path) is None

    in_time(story)


@pytest.mark.parametrize("plant", PLANTED)
def test_what_is_put_there_while_it_runs_changes_nothing(
    tmp_path: Path, plant: Callable[[Path], None]
) -> None:
    def story() -> None:
        with stopping.on_duty(tmp_path):
            (tmp_path / claim.LOCK).unlink()
            for name in NAMES:
                plant(tmp_path / name)
            assert stopping.asked(tmp_path) is None
            stopping.ask(tmp_path, StopRequest(drain=True))
            assert stopping.asked(tmp_path) == StopRequest(drain=True)
            stopping.withdraw(tmp_path)
            assert stopping.asked(tmp_path) is None
            assert claim.runners(tmp_path) == [os.getpid()]
            stopping.write_outcome(tmp_path, WORD)
        assert stopping.read_outcome(tmp_path) == WORD

    in_time(story)


@pytest.mark.parametrize("plant", [*PLANTED, lambda path: path.write_text("../../elsewhere"), Path.touch])
def test_who_we_are_is_made_anew_where_nobody_can_tell(tmp_path: Path, plant: Callable[[Path], None]) -> None:
    plant(tmp_path / "origin")

    def story() -> None:
        made = state_files.origin(tmp_path)
        assert (len(made), state_files.origin(tmp_path)) == (32, made)

    in_time(story)
