"""The keeper's journal: what is written is read back, whatever happened to the file meanwhile."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.runner.keeper import journal, table
from phalanx.runner.keeper.attempt import KeptAttempt
from phalanx.runner.keeper.journal import Journal, JournalContents
from phalanx.runner.keeper.recovery import Survivors
from phalanx.runner.keeper.tree import Mark

STARTED = '["started","j/0/1",77,12.5,[3,4],["/cg/a"]]'
EXIT: dict[str, object] = {
    "code": 0,
    "signal": None,
    "oom": False,
    "reason": None,
    "started_at": 12.5,
    "ended_at": 13.5,
    "stderr_tail": "",
}
ENDED = json.dumps(["ended", "j/0/1", EXIT])


def an_attempt(key: str, code: int | None = None) -> KeptAttempt:
    attempt = KeptAttempt(key, {"out": "/nowhere/out", "err": "/nowhere/err"})
    attempt.pid, attempt.started_at, attempt.born = 77, 12.5, (3, 4)
    if code is not None:
        attempt.code, attempt.ended_at = code, 13.5
        attempt.close(oom=False)
    return attempt


def replay(text: str, folder: Path) -> JournalContents:
    path = folder / "journal"
    path.write_text(text)
    return journal.read(str(path))


def test_no_journal_is_an_empty_past(tmp_path: Path):
    past = journal.read(str(tmp_path / "none"))
    assert (past.attempts, past.stopped, past.boot) == ({}, {}, "")


def test_a_running_attempt_is_known_with_all_that_finds_it(tmp_path: Path):
    past = replay(f'["boot","b1"]\n{STARTED}\n', tmp_path)
    assert past.boot == "b1"
    assert past.attempts == {"j/0/1": [77, [3, 4], 12.5, ["/cg/a"], None]}


def test_an_end_is_kept_until_it_is_forgotten(tmp_path: Path):
    assert replay(f"{STARTED}\n{ENDED}\n", tmp_path).attempts["j/0/1"][4] == EXIT
    assert replay(f'{STARTED}\n{ENDED}\n["forget",["j/0/1","other"]]\n', tmp_path).attempts == {}


def test_a_torn_last_line_is_skipped(tmp_path: Path):
    for length in range(1, len(ENDED)):
        past = replay(f"{STARTED}\n{ENDED[:length]}", tmp_path)
        assert past.attempts["j/0/1"][4] is None
        assert len(past.unreadable) == 1
        assert past.unreadable[0].startswith("line 2: ")


def test_a_damaged_line_harms_no_other(tmp_path: Path):
    past = replay(f'{STARTED}\n\x00\xff garbage\n["started",5]\n[]\n{{}}\n7\n{ENDED}\n', tmp_path)
    assert past.attempts["j/0/1"][4] == EXIT
    assert [line.partition(":")[0] for line in past.unreadable] == [
        "line 2",
        "line 3",
        "line 4",
        "line 5",
        "line 6",
    ]


@pytest.mark.parametrize(
    "line",
    [
        '["started","x",77,12.5,[3,4],[]]',
        '["started","j/0/1\\n",77,12.5,[3,4],[]]',
        '["started","j/0/1",77,NaN,[3,4],[]]',
        '["started","j/0/1",77,12.5,[3,4],[5]]',
        '["started","j/0/1",77,12.5,[3,4],["/cg/phalanx-n/a\\u0000b"]]',
        '["started","j/0/1",77,12.5,[3,4],["/cg/phalanx-n/\\ud800"]]',
        f'["started","j/0/1",77,12.5,[3,4],["/{"x" * 5000}"]]',
        '["started","j/0/1",-1,12.5,[3,4],[]]',
        '["started","j/0/1",4194305,12.5,[3,4],[]]',
        '["started","j/0/1",true,12.5,[3,4],[]]',
        f'["started","j/0/1",77,12.5,[1,{10**400}],[]]',
        '["started","j/0/1",77,12.5,[-1,4],[]]',
        '["started","j/0/1",77,12.5,[false,4],[]]',
        '["started","j/0/1",77,1e300,[3,4],[]]',
        '["stopped","../../etc"]',
        '["stopped",7]',
    ],
)
def test_what_can_be_no_attempt_is_not_believed(tmp_path: Path, line: str):
    past = replay(line, tmp_path)
    assert (past.attempts, past.stopped) == ({}, {})
    assert len(past.unreadable) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"code": "0"},
        {"code": True},
        {"code": 10**30},
        {"code": -1},
        {"signal": 10**30},
        {"ended_at": 1e300},
        {"more": 10**30},
        {"\ud800": 1},
        {"oom": None},
        {"stopped": "yes"},
        {"why": 7},
        {"started_at": float("nan")},
        {"ended_at": None},
        {"stderr_tail": "\ud800"},
        {"stderr_tail": ["x"]},
        {"reason": {}},
        {"more": [1]},
    ],
)
def test_an_exit_that_the_runner_could_not_read_is_as_good_as_none(
    tmp_path: Path, changed: dict[str, object]
):
    past = replay(f"{STARTED}\n{json.dumps(['ended', 'j/0/1', EXIT | changed])}\n", tmp_path)
    assert past.attempts["j/0/1"][4] is None
    assert len(past.unreadable) == 1


@given(st.lists(st.binary(max_size=60), max_size=10))
def test_no_bytes_break_the_replay(lines: list[bytes]):
    past = JournalContents()
    for line in lines:
        journal._apply_text(past, 1, line)
    assert len(past.unreadable) == len(lines)


def test_what_was_noted_is_written_with_the_next_flush(tmp_path: Path):
    written = Journal(str(tmp_path / "journal"))
    written.note(an_attempt("j/0/1").started_line())
    assert (tmp_path / "journal").read_text() == ""
    assert written.try_flush()
    assert journal.read(str(tmp_path / "journal")).attempts["j/0/1"][0] == 77


def test_a_full_disk_is_told_and_nothing_is_lost(tmp_path: Path):
    full = Journal("/dev/full")
    full.note(STARTED)
    assert not full.try_flush()
    assert full.trouble == "No space left on device"
    assert full._unwritten == f"{STARTED}\n".encode()


def test_compacting_keeps_what_matters_and_drops_the_rest(tmp_path: Path):
    path = str(tmp_path / "journal")
    written = Journal(path)
    for number in range(1000):
        written.note(an_attempt(f"old/{number}/1").started_line())
    written.try_flush()
    written.compact("b2", [an_attempt("j/0/1"), an_attempt("j/1/1", code=3)], ["s/0/1"])
    written.note(an_attempt("new/0/1").started_line())
    written.try_flush()
    past = journal.read(path)
    assert past.boot == "b2"
    assert list(past.attempts) == ["j/0/1", "j/1/1", "new/0/1"]
    assert past.attempts["j/1/1"][4]["code"] == 3
    assert list(past.stopped) == ["s/0/1"]
    assert past.unreadable == []


def test_a_journal_that_grew_asks_to_be_compacted_but_not_twice(tmp_path: Path):
    written = Journal(str(tmp_path / "journal"))
    line = json.dumps(["stopped", "x" * 1000])
    while not written.is_large():
        written.note(line)
        written.try_flush()
    written.compact("b", [], [])
    assert not written.is_large()


def test_a_journal_that_cannot_be_replaced_costs_nothing_and_is_not_written_anew_each_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no room")

    path = tmp_path / "journal"
    written = Journal(str(path))
    monkeypatch.setattr(journal, "COMPACT_BYTES_MIN", 0)
    written.note(STARTED)
    assert written.try_flush()
    assert written.is_large()
    monkeypatch.setattr(os, "replace", no_room)
    opened = len([*Path("/proc/self/fd").iterdir()])
    with pytest.raises(OSError, match="no room"):
        written.compact("b", [], [])
    assert len([*Path("/proc/self/fd").iterdir()]) == opened
    assert [*tmp_path.iterdir()] == [path]
    assert not written.is_large()  # not yet
    written.note(ENDED)
    assert written.try_flush()
    assert journal.read(str(path)).attempts["j/0/1"][4] == EXIT
    monkeypatch.undo()
    written.compact("b", [], [])
    assert path.read_text() == '["boot", "b"]\n'


def test_only_the_newest_stopped_keys_are_remembered():
    stopped: dict[str, None] = {}
    for number in range(table.STOPPED_MAX + 5):
        table.remember(stopped, f"j/{number}/1")
    assert len(stopped) == table.STOPPED_MAX
    assert next(iter(stopped)) == "j/5/1"


def test_the_lines_of_an_attempt_are_json_whatever_its_key():
    attempt = an_attempt('j"\\\n\ud800/0/1', code=1)
    assert json.loads(attempt.started_line())[:4] == ["started", attempt.key, 77, 12.5]
    assert json.loads(attempt.ended_line())[2] == {
        "code": 1,
        "signal": None,
        "oom": False,
        "reason": None,
        "started_at": 12.5,
        "ended_at": 13.5,
        "stderr_tail": "",
        "stopped": False,
        "why": None,
        "files": None,
        "cpu_s": 0.0,
        "memory_peak_bytes": 0,
        "read_bytes": 0,
        "written_bytes": 0,
    }
    assert json.loads(attempt.row())[1] == "ended"


@pytest.mark.parametrize("pid", [-1, 0, 1])
def test_no_line_makes_the_machines_own_processes_an_attempts(tmp_path: Path, pid: int):
    """Only looked at, never killed: session 0 is the kernel's and that of much else."""
    told = replay(f'["started","j/0/1",{pid},12.5,[0,9999999999],["/sys/fs/cgroup","/"]]', tmp_path)
    survivors = Survivors(told, Mark(str(tmp_path)))
    assert (survivors._sessions, survivors._cgroups) == (set(), [])


@pytest.mark.parametrize("procs", ["no number\n", "9" * 5000, "99999999999\n"])
def test_a_folder_that_is_no_cgroup_stops_nobody(tmp_path: Path, procs: str):
    """A task can write it into the journal, and anything into the folder."""
    folder = tmp_path / "phalanx-x" / "slot-0"
    folder.mkdir(parents=True)
    (folder.parent / "keeper").mkdir()
    (folder / "cgroup.procs").write_text(procs)
    os.mkfifo(folder / "cgroup.kill")  # to open it without a reader would block
    survivors = Survivors(
        replay(f'["started","j/0/1",0,12.5,[3,4],["{folder}"]]', tmp_path), Mark(str(tmp_path))
    )
    assert survivors._cgroups == [str(folder)]
    assert survivors.find() == set()
    survivors.kill()


@pytest.mark.parametrize(
    "line",
    [
        "ab\n",
        "\n",
        '["stopped","j/0/1"]\n',
        '["started","j/0/1",77,12.5,[3,4],["/cg/a"]]\n',
        "[" + "{}," * 100_000 + "{}]\n",
        "[" + ("[" * 400 + "]" * 400 + ",") * 300 + "1]\n",
    ],
    ids=["short", "empty", "stopped", "started", "wide", "deep"],
)
def test_a_flooded_journal_is_read_in_a_moment_and_what_came_before_is_known(tmp_path: Path, line: str):
    path = tmp_path / "journal"
    path.write_text(f"{STARTED}\n{ENDED}\n" + line * (journal.BYTES_MAX // len(line) + 1))
    began = process_time()
    told = journal.read(str(path))
    assert process_time() - began < 1.0  # about 0.4 s at the most
    assert "j/0/1" in told.attempts
    assert len(told.unreadable) <= journal.REPORTED_MAX


def test_what_others_write_into_the_journal_is_gone_with_the_next_line(tmp_path: Path):
    path = tmp_path / "journal"
    written = Journal(str(path))
    written.begin("b", [], [])
    assert not written.is_large()
    with path.open("a") as forged:
        forged.write("ab\n" * (journal.COMPACT_BYTES_MIN // 2))
    written.note(STARTED)
    assert written.try_flush()
    assert written.is_large()
    written.compact("b", [], [])
    assert path.read_text() == '["boot", "b"]\n'


def test_a_journal_has_no_more_lines_than_are_read(tmp_path: Path):
    written = Journal(str(tmp_path / "journal"))
    written.begin("b", [], [])
    for _ in range(journal.COMPACT_LINES_MIN + 1):
        written.note("[]")
    assert not written.is_large()
    assert written.try_flush()
    assert written.is_large()
