"""Slots of attempts: what fails once costs nothing later."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from phalanx.runner.keeper import cgroup
from phalanx.runner.keeper.attempt import KeptAttempt, KeptBrief
from phalanx.runner.keeper.cgroup import AttemptSlots
from phalanx.runner.keeper.files import LeftFiles
from phalanx.runner.keeper.programs import SpawnRefused
from phalanx.runner.keeper.spawn import Spawner
from phalanx.runner.keeper.tree import Mark


@contextmanager
def no_descriptors() -> Iterator[None]:
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)


def an_attempt(key: str) -> KeptAttempt:
    return KeptAttempt(key, {"out": "", "err": ""})


def a_base(folder: Path) -> str:
    """A folder that looks like a node's, with the first slot."""
    for name in ("keeper", "slot-0"):
        (folder / "phalanx-n" / name).mkdir(parents=True)
        (folder / "phalanx-n" / name / "cgroup.procs").touch()
    return str(folder / "phalanx-n")


def test_a_slot_that_found_no_descriptor_has_its_cgroup_the_next_time(tmp_path: Path):
    base, slots = a_base(tmp_path), AttemptSlots(Mark(str(tmp_path)))
    first, second = an_attempt("j/0/1"), an_attempt("j/1/1")
    slots.take(first, base)
    with no_descriptors():
        slots.enter(first)
        slots.leave(first)
    assert first.slot_folder == ""
    slots.give_back(first)
    slots.take(second, base)
    slots.enter(second)
    slots.leave(second)
    assert (second.slot, second.slot_folder) == (0, f"{base}/slot-0")
    assert Path(base, "slot-0", "cgroup.procs").read_text() == "0"
    slots[0].close()


def test_without_descriptors_no_cgroup_counts_as_empty(tmp_path: Path):
    base, slots = a_base(tmp_path), AttemptSlots(Mark(str(tmp_path)))
    attempt = an_attempt("j/0/1")
    slots.take(attempt, base)
    Path(base, "slot-0", "cgroup.procs").write_text("4000000\n")  # no process has this pid
    with no_descriptors():
        assert not slots[0].is_empty()
        slots[0].kill()
        with pytest.raises(OSError, match="Too many open files"):
            cgroup.members([f"{base}/slot-0"])
        assert cgroup.known_members([f"{base}/slot-0"]) == set()
    assert cgroup.members([f"{base}/slot-0"]) == {4000000}
    assert not slots[0].is_empty()


def test_a_slot_whose_cgroup_is_anothers_goes_without_until_that_is_empty(tmp_path: Path):
    base, slots = a_base(tmp_path), AttemptSlots(Mark(str(tmp_path)))
    procs = Path(base, "slot-0", "cgroup.procs")
    procs.write_text("4000000\n")  # no process has this pid
    folders = []
    for position, inside in enumerate(("4000000\n", "4000000\n", "")):
        procs.write_text(inside)
        attempt = an_attempt(f"j/{position}/1")
        slots.take(attempt, base)
        folders.append(attempt.slot_folder)
        slots.give_back(attempt)
    assert folders == ["", "", f"{base}/slot-0"]


@pytest.mark.parametrize(
    ("argv", "error"), [(["true", "a\0b"], ValueError), (["true", 7], TypeError), (["a\0b"], ValueError)]
)
def test_an_attempt_that_the_system_cannot_read_leaves_its_slot(
    tmp_path: Path, argv: list[str], error: type[Exception]
):
    spawner = Spawner(AttemptSlots(Mark(str(tmp_path))), LeftFiles())
    options = {"out": str(tmp_path / "out"), "err": str(tmp_path / "err")}
    with pytest.raises(error):
        spawner.start("bad/0/1", KeptBrief({"argv": argv, "env": {}}), options)
    attempt = spawner.start("good/0/1", KeptBrief({"argv": ["true"], "env": {}}), options)
    os.waitpid(attempt.pid, 0)
    assert attempt.slot == 0


def late_after(looks: int) -> Callable[[], tuple[str, str] | None]:
    """What the table answers for a start whose lease ends after so many checks."""
    asked = iter(range(looks))
    return lambda: ("fenced", "the lease is over") if next(asked, None) is None else None


def test_nothing_is_spawned_when_the_lease_ended_on_the_way(tmp_path: Path):
    spawner = Spawner(AttemptSlots(Mark(str(tmp_path))), LeftFiles())
    options = {"out": str(tmp_path / "out"), "err": str(tmp_path / "err")}
    with pytest.raises(SpawnRefused, match="the lease is over"):
        spawner.start("j/0/1", KeptBrief({"argv": ["true"], "env": {}}), options, late_after(0))
    assert [*tmp_path.iterdir()] == []
    assert spawner._slots.key_of(0) == ""


def test_what_was_spawned_after_the_lease_is_killed_at_once(tmp_path: Path):
    """A keeper that was stopped in the middle of it."""
    spawner = Spawner(AttemptSlots(Mark(str(tmp_path))), LeftFiles())
    options = {"out": str(tmp_path / "out"), "err": str(tmp_path / "err")}
    brief = KeptBrief({"argv": ["sleep", "300"], "env": {}})
    attempt = spawner.start("late/0/1", brief, options, late_after(1))
    assert (os.waitpid(attempt.pid, 0)[1], attempt.reason) == (signal.SIGKILL, "fenced")
    (tmp_path / "out").unlink()
    (tmp_path / "err").unlink()
    attempt = spawner.start("early/0/1", brief, options, late_after(2))
    os.kill(attempt.pid, signal.SIGTERM)
    assert (os.waitpid(attempt.pid, 0)[1], attempt.reason) == (signal.SIGTERM, None)


def test_a_threaded_cgroup_is_frozen_while_its_processes_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with subprocess.Popen(["sleep", "300"]) as task:
        contents = {"cgroup.type": "threaded\n", "cgroup.threads": f"{task.pid}\n", "cgroup.freeze": "0"}
        for name, text in contents.items():
            (tmp_path / name).write_text(text)
        killed: list[tuple[set[int], str]] = []

        def note(find: Callable[[], set[int]], *_: int) -> None:
            killed.append((find(), (tmp_path / "cgroup.freeze").read_text()))

        monkeypatch.setattr(cgroup, "signal_each", note)
        assert cgroup.kill([str(tmp_path)])
        task.kill()
    assert killed == [({task.pid}, "1")]
    assert (tmp_path / "cgroup.freeze").read_text() == "0"
