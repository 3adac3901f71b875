"""The machine's own limit: how fast `/bin/true` can be spawned, two at a time, with nothing round it.

It runs as a small separate process, so that nothing of ours is in the way. With `logs` every spawn also gets a session,
a pipe for its output and a new file, the log, into which one read at the end would move what came, as with ours.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

IN_FLIGHT = 2


class Ceiling(NamedTuple):
    """Spawns a second, and the CPU milliseconds of one: parent and child."""

    per_s: float
    cpu_ms: float


def measure(spawns: int, logs: Path | None = None) -> Ceiling:
    """Measure in a fresh process; `logs` is a new folder for the logs."""
    words = [sys.executable, "-I", "-S", __file__, str(spawns), *([str(logs)] if logs else [])]
    answer = subprocess.run(words, stdout=subprocess.PIPE, check=True)
    return Ceiling(*json.loads(answer.stdout))


def joined(one: Ceiling, other: Ceiling) -> Ceiling:
    """Two measurements of equal size as one."""
    return Ceiling(2 / (1 / one.per_s + 1 / other.per_s), (one.cpu_ms + other.cpu_ms) / 2)


def _spawn_all(spawns: int, folder: str | None) -> Ceiling:
    before, began = os.times(), time.perf_counter()
    outputs: dict[int, int] = {}  # by process: the end of its pipe that is read
    for number in range(spawns):
        if number >= IN_FLIGHT:
            _reap(outputs)
        _spawn(folder, number, outputs)
    for _ in range(min(IN_FLIGHT, spawns)):
        _reap(outputs)
    wall_s, after = time.perf_counter() - began, os.times()
    return Ceiling(spawns / wall_s, (sum(after[:4]) - sum(before[:4])) / spawns * 1000)


def _spawn(folder: str | None, number: int, outputs: dict[int, int]) -> None:
    if folder is None:
        os.posix_spawn("/bin/true", ["/bin/true"], {})
        return
    out, into = os.pipe2(os.O_CLOEXEC)
    flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND
    actions: list[Any] = [(os.POSIX_SPAWN_OPEN, 1, f"{folder}/{number}", flags, 0o600)]
    actions += [(os.POSIX_SPAWN_DUP2, into, fd) for fd in (1, 2)]
    outputs[os.posix_spawn("/bin/true", ["/bin/true"], {}, setsid=True, file_actions=actions)] = out
    os.close(into)


def _reap(outputs: dict[int, int]) -> None:
    out = outputs.pop(os.waitpid(-1, 0)[0], None)
    if out is not None:
        os.read(out, 1 << 16)
        os.close(out)


if __name__ == "__main__":
    json.dump(_spawn_all(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None), sys.stdout)
