"""Memory that no cgroup holds: what is above its limit for long is ended, and shared pages are counted once."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from phalanx.runner.usage.memory_watch import SAMPLES, MemoryWatch, proportional_bytes
from tests.support import known_load

KEY, OTHER = ("j", 0, 1), ("j", 1, 1)
MIB = 1 << 20


def a_watch(limit: int, used: int = 10 * MIB) -> tuple[MemoryWatch, list[object]]:
    ended: list[object] = []

    def shared(_pids: Iterable[int]) -> int:
        return used

    return MemoryWatch(lambda key: limit if key == KEY else 0, ended.append, shared), ended


def test_what_is_above_its_limit_several_times_in_a_row_is_ended():
    watch, ended = a_watch(limit=MIB)
    for _ in range(SAMPLES - 1):
        watch.look(KEY, 20 * MIB, [1])
        watch.look(OTHER, 20 * MIB, [2])
    assert ended == []
    watch.look(KEY, 20 * MIB, [1])
    assert ended == [KEY]


def test_what_comes_back_below_it_is_not():
    watch, ended = a_watch(limit=MIB)
    for _ in range(3 * SAMPLES):
        for _ in range(SAMPLES - 1):
            watch.look(KEY, 20 * MIB, [1])
        watch.look(KEY, MIB, [1])
    assert ended == []


def test_pages_that_processes_share_are_held_against_a_task_once():
    watch, ended = a_watch(limit=12 * MIB, used=10 * MIB)
    for _ in range(2 * SAMPLES):
        watch.look(KEY, 40 * MIB, [1, 2, 3, 4])
    assert ended == []


def test_forked_children_share_their_pages():
    text = """
import os, sys
held = bytearray(os.urandom(1 << 20)) * 64
pids = []
for _ in range(3):
    pid = os.fork()
    if not pid:
        sys.stdin.read()
        os._exit(0)
    pids.append(pid)
print(os.getpid(), *pids, flush=True)
sys.stdin.read()
"""
    command = [known_load.cpu(0)[0], "-I", "-S", "-c", text]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pids = [*map(int, process.stdout.readline().split())]
        page = os.sysconf("SC_PAGE_SIZE")
        resident = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * page for pid in pids]
        used = proportional_bytes([*pids, 1 << 22])
        assert process.stdin is not None
        process.stdin.close()
    assert sum(resident) > 4 * 60 * MIB
    assert 64 * MIB < used < 100 * MIB
