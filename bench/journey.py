"""How many files of `src/phalanx` a job passes through: one submitted task, and one gang that evicts another.

    .venv/bin/python -m bench.journey [--source DIR] [--names]

Every process of a real cluster (command, coordinator, runner, keeper) notes each file of which a function is called
between the start of `phalanx submit` and the end of the job. Imports do not count, and neither do the minutes before
and after. Heartbeats that happen to fall between do.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.cluster import PHALANX, Cluster, submit, until, wait

ROOT = Path(__file__).resolve().parents[1]
# Runs in every process, the keeper included, which has neither our packages nor an environment.
TRACER = '''
import os, subprocess, sys, threading

OPTIMIZED = 1  # of a code object: it is a function's, neither a module's nor the body of a class

def trace(folder, source):
    seen, began = set(), [0]

    def note(frame, event, _):
        path = frame.f_code.co_filename
        if event != "call" or not path.startswith(source) or not frame.f_code.co_flags & OPTIMIZED:
            return
        try:
            at = os.stat(folder + "/began").st_mtime_ns
        except OSError:
            return
        if at != began[0]:
            began[0] = at
            seen.clear()
        if path not in seen:
            seen.add(path)
            with open(folder + "/seen", "a") as log:
                log.write(path[len(source):] + "\\n")

    threading.setprofile(note)
    sys.setprofile(note)

def follow(folder, source):
    """Have the keeper traced as well, which is started with options that keep all of this out."""
    run = subprocess.run

    def started(command, *words, **options):
        at = next((at for at, word in enumerate(command) if str(word).endswith("/keeper/__main__.py")), None)
        if at is not None:
            command = [*command[:at], folder + "/sitecustomize.py", folder, source, *command[at:]]
        return run(command, *words, **options)

    subprocess.run = started

if __name__ == "__main__":
    import runpy
    folder, source = sys.argv[1:3]
    sys.argv = sys.argv[3:]
    trace(folder, source)
    runpy.run_path(sys.argv[0], run_name="__main__")
elif "JOURNEY" in os.environ:
    folder, source = os.environ["JOURNEY"].split(":")
    follow(folder, source)
    trace(folder, source)
'''


class Journey:
    """A cluster whose processes all record the files they pass through."""

    def __init__(self, folder: Path, source: Path) -> None:
        self._notes = folder / "notes"
        self._notes.mkdir()
        (self._notes / "sitecustomize.py").write_text(TRACER)
        (folder / "cluster").mkdir()
        self.cluster = Cluster(folder / "cluster", {})
        path = os.pathsep.join((str(self._notes), str(source)))
        self.cluster.env |= {"JOURNEY": f"{self._notes}:{source}/phalanx/", "PYTHONPATH": path}

    def files(self, *words: str) -> list[str]:
        """Submit a job with the command and wait for its end; returns the files passed through."""
        (self._notes / "seen").write_text("")
        (self._notes / "began").write_text("")
        found = subprocess.run(
            [str(PHALANX), "submit", *words, "-o", "name"],
            env=self.cluster.env,
            cwd=self.cluster.folder,
            check=True,
            capture_output=True,
            text=True,
        )
        with self.cluster.connect() as rest:
            wait(rest, found.stdout.split()[-1].removeprefix("job/"))
        passed = sorted(set((self._notes / "seen").read_text().split()))
        (self._notes / "began").unlink()
        return passed


def measure(source: Path) -> dict[str, list[str]]:
    with tempfile.TemporaryDirectory() as folder:
        journey = Journey(Path(folder), source)
        cluster = journey.cluster
        cluster.start_coordinator()
        try:
            for name in ("n1", "n2"):
                cluster.start_runner(name, "cpus=1,ram=4GiB")
            journey.files("--", "/bin/true")  # what is loaded late is loaded
            found = {"one task": journey.files("--", "/bin/true")}
            with cluster.connect() as rest:
                weaker = submit(rest, "sleep", "1000", tasks=2, priority=1)
                until(
                    lambda: b'"Running"' in rest.ask("GET", f"/v1/jobs/{weaker}"),
                    30.0,
                    "the weaker gang runs",
                )
                words = ("--tasks", "2", "--priority", "100", "--", "/bin/true")
                found["a gang that evicts another"] = journey.files(*words)
                rest.ask("POST", f"/v1/jobs/{weaker}/cancel", b"{}")
        finally:
            cluster.stop()
    return found


def report(found: dict[str, list[str]], names: bool) -> None:
    for what, files in found.items():
        parts: dict[str, int] = {}
        for path in files:
            part = "/".join(path.split("/")[: 2 if path.startswith("core/") else 1])
            parts[part] = parts.get(part, 0) + 1
        print(f"{what}: {len(files)} files ({', '.join(f'{part} {count}' for part, count in parts.items())})")
        if names:
            print("\n".join(f"  {path}" for path in files))


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.journey", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--source", type=Path, default=ROOT / "src", help="the folder that holds phalanx")
    parser.add_argument("--names", action="store_true", help="name every file")
    options = parser.parse_args(words)
    report(measure(options.source.resolve()), options.names)
    return 0


if __name__ == "__main__":
    sys.exit(main())
