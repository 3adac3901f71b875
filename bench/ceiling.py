"""The machine's own limit: how fast `/bin/true` can be spawned, two at a time, with nothing round it.

It runs as a small separate process, so that nothing of ours is in the way. With `logs` every spawn also gets a session
and two new files, as every task of ours does.
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
    """Measure in a fresh process; `logs` is a new folder for the files."""
    words = [sys.executable, "-I", "-S", __file__, str(spawns), *([str(logs)] if logs else [])]
    answer = subprocess.run(words, stdout=subprocess.PIPE, check=True)
    return Ceiling(*json.loads(answer.stdout))


def joined(one: Ceiling, other: Ceiling) -> Ceiling:
    """Two measurements of equal size as one."""
    return Ceiling(2 / (1 / one.per_s + 1 / other.per_s), (one.cpu_ms + other.cpu_ms) / 2)


def _spawn_all(spawns: int, folder: str | None) -> Ceiling:
    before, began = os.times(), time.perf_counter()
    for number in range(spawns):
        if number >= IN_FLIGHT:
            os.waitpid(-1, 0)
        os.posix_spawn("/bin/true", ["/bin/true"], {}, **(_with_logs(folder, number) if folder else {}))
    for _ in range(min(IN_FLIGHT, spawns)):
        os.waitpid(-1, 0)
    wall_s, after = time.perf_counter() - began, os.times()
    return Ceiling(spawns / wall_s, (sum(after[:4]) - sum(before[:4])) / spawns * 1000)


def _with_logs(folder: str, number: int) -> dict[str, Any]:
    flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND
    opens = [(os.POSIX_SPAWN_OPEN, fd, f"{folder}/{number}.{fd}", flags, 0o600) for fd in (1, 2)]
    return {"setsid": True, "file_actions": opens}


if __name__ == "__main__":
    json.dump(_spawn_all(int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None), sys.stdout)
