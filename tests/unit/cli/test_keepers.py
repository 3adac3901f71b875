"""What a killed cluster leaves is found and waited for: with processes that have the command lines of the real ones."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from phalanx.cli import keepers
from phalanx.cli.keepers import Left, left_in, stop
from phalanx.cli.shape import ClusterShape, remember
from phalanx.clock import SystemClock
from phalanx.runner.keeper.lookup import WATCHDOG
from tests.support.fake_client import Cli

Start = Callable[[Path], int]
PROGRAM = "/opt/phalanx/runner/keeper/__main__.py"


@pytest.fixture
def held() -> Iterator[ExitStack]:
    with ExitStack() as held:
        yield held


def started(held: ExitStack, argv: list[str], executable: str) -> int:
    """A process that stays until its standard input ends, once it has written a line."""
    pipe = subprocess.PIPE
    child = held.enter_context(subprocess.Popen(argv, executable=executable, stdin=pipe, stdout=pipe))
    held.callback(child.kill)
    assert child.stdin
    assert child.stdout
    child.stdin.write(b"\n")
    child.stdin.flush()
    child.stdout.readline()
    return child.pid


def a_keeper(held: ExitStack, folder: Path) -> int:
    """A keeper that ignores signals."""
    script = "trap '' TERM; read x; echo; read x"
    return started(held, ["sh", "-c", script, PROGRAM, str(folder)], "/bin/sh")


def a_watchdog(held: ExitStack, folder: Path) -> int:
    return started(held, [f"{WATCHDOG}{folder}"], "/bin/cat")


def runners(folder: Path, *names: str) -> list[Path]:
    remember(folder, ClusterShape(names=names))
    made = [folder / "runners" / name for name in names]
    for each in made:
        each.mkdir(parents=True)
    return made


def test_keepers_and_the_watchdogs_of_dead_ones_are_found_through_a_link(tmp_path: Path, held: ExitStack):
    (tmp_path / "real").mkdir()
    one, two, _ = runners(tmp_path / "real", "n1", "n2", "n3")
    (tmp_path / "link").symlink_to("real")
    keeper, _ = a_keeper(held, one), a_watchdog(held, one)  # which ends with its keeper
    watchdog = a_watchdog(held, two)
    assert left_in(tmp_path / "link") == left_in(tmp_path / "real") == Left([keeper], [watchdog])


@pytest.mark.timeout(30)
def test_there_is_one_deadline_for_all(tmp_path: Path, held: ExitStack, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(keepers, "END_WITHIN_S", 0.5)
    (one,) = runners(tmp_path, "n1")
    for _ in range(8):
        a_keeper(held, one)
    left, clock = left_in(tmp_path), SystemClock()
    began = clock.monotonic()
    assert stop(tmp_path, left) == left
    assert 0.4 < clock.monotonic() - began < 2.0


@pytest.mark.timeout(30)
def test_down_waits_for_a_watchdog_and_tells_it_nothing(
    tmp_path: Path, held: ExitStack, cli: Cli, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(keepers, "END_WITHIN_S", 0.1)
    (one,) = runners(tmp_path, "n1")
    watchdog = a_watchdog(held, one)
    said = cli("down", "--state", str(tmp_path))
    assert said.code == 69
    assert f"waiting for 1 watchdog (pid {watchdog})" in said.err
    assert "do not kill" in said.err
    assert left_in(tmp_path) == Left([], [watchdog])
