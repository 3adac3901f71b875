"""The schedulers we compare with. Each runs the same `/bin/true` on the same slots, in its own processes.

HyperQueue's wheel has no `hq` program, only its Rust library under a Python API: `hyperqueue_peer.py` runs as server,
worker and client and is all they import. Its journal is off, because the wheel cannot turn it on. Ray is large, so it
is fetched only when asked for, into its own venv.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

from bench.machine import family
from bench.partner import Partner

RAY = "ray==2.60.0"
_FOLDER = Path(__file__).parent


class HyperQueue:
    """One server with one worker, and a client."""

    def __init__(self, folder: Path, cores: int) -> None:
        server, worker = str(folder / "server"), str(folder / "worker")
        self._partners: list[Partner] = []
        self._start(folder, "server", server)
        self._start(folder, "worker", worker, server, str(cores))
        self._client = self._start(folder, "client", server, str(folder))

    @staticmethod
    def is_installed() -> bool:
        return importlib.util.find_spec("hyperqueue") is not None

    def parts(self) -> dict[str, list[int]]:
        return {each.name: [each.pid] for each in self._partners}

    def run(self, tasks: int) -> float:
        """Run so many `/bin/true`; returns the seconds from the submit to the last one's end."""
        return float(self._client.ask({"run": tasks})["seconds"])

    def latencies(self, samples: int, idle_s: float) -> list[float]:
        """Seconds from submit to completed, one task at a time, with a pause before each."""
        answer = self._client.ask({"latencies": samples, "idle_s": idle_s})
        return [float(each) for each in answer["seconds"]]

    def stop(self) -> None:
        for each in reversed(self._partners):
            each.stop()

    def _start(self, folder: Path, role: str, *words: str) -> Partner:
        peer = str(_FOLDER / "hyperqueue_peer.py")
        partner = Partner([sys.executable, "-I", peer, role, *words], folder, role)
        self._partners.append(partner)
        partner.hear()  # it writes a line when it is ready
        return partner


class Ray:
    """A separate Ray on this machine, driven by one process. A task is a warm worker that spawns."""

    def __init__(self, folder: Path, cores: int) -> None:
        python = str(folder / "venv" / "bin" / "python")
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
        subprocess.run([python, "-m", "pip", "-qq", "install", RAY], check=True)
        self._driver = Partner([python, "-I", str(_FOLDER / "ray_peer.py"), str(cores)], folder, "driver")
        self._driver.hear()  # it has run a few tasks by then, so that its workers exist

    def parts(self) -> dict[str, list[int]]:
        driver, *others = family(self._driver.pid)
        return {"driver": [driver], "daemons and workers": others}

    def run(self, tasks: int) -> float:
        return float(self._driver.ask({"run": tasks})["seconds"])

    def stop(self) -> None:
        self._driver.stop()
