"""One run of the benchmark: its folder, how much it measures, and the clusters it has started."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from pathlib import Path

from bench.cluster import Cluster
from bench.machine import Machine
from bench.rivals import HyperQueue, Ray

PATIENCE_S = 60.0  # how long a round waits for a quiet second
PATIENCE_ALL_S = 900.0  # and all rounds together


class Session:
    """What every cell gets. Clusters live until the session closes, so that nothing is deleted between."""

    def __init__(self, machine: Machine, folder: Path, *, quick: bool, with_ray: bool) -> None:
        self.machine = machine
        self.folder = folder
        self.quick = quick
        self.with_ray = with_ray
        self._patience_s = 0.0 if quick else PATIENCE_ALL_S
        self._numbers = itertools.count(1)
        self._open = ExitStack()

    def size(self, full: int, quick: int) -> int:
        """How many, in a full run or in a quick one."""
        return quick if self.quick else full

    def settle(self) -> None:
        """Wait for a quiet moment before a round, as long as patience lasts."""
        self._patience_s -= self.machine.wait_until_quiet(self.folder, min(PATIENCE_S, self._patience_s))

    def place(self, name: str) -> Path:
        """A new folder, never used before: files created beside deleted ones cost more."""
        folder = self.folder / f"{name}-{next(self._numbers)}"
        folder.mkdir()
        return folder

    def cluster(self, cpus: int | None = 2, **settings: int | str) -> Cluster:
        """A coordinator, and unless `cpus` is None one runner with so many simulated cores."""
        cluster = Cluster(self.place("phalanx"), settings)
        self._open.callback(cluster.stop)
        cluster.start_coordinator()
        if cpus is not None:
            cluster.start_runner("n1", f"cpus={cpus},ram=8GiB")
        self.machine.own(cluster.parts())
        return cluster

    def hyperqueue(self, cores: int = 2) -> HyperQueue | None:
        """HyperQueue's server, one worker and a client as three processes, or None if it is not installed."""
        if not HyperQueue.is_installed():
            return None
        peer = HyperQueue(self.place("hyperqueue"), cores)
        self._open.callback(peer.stop)
        self.machine.own(peer.parts())
        return peer

    def ray(self, cores: int = 2) -> Ray:
        """Ray, fetched into its own venv."""
        peer = Ray(self.place("ray"), cores)
        self._open.callback(peer.stop)
        self.machine.own(peer.parts())
        return peer

    def close(self) -> None:
        self._open.close()
