"""One DAG of a thousand trivial processes on two slots: ours, Dask distributed, Snakemake and Prefect, in turn.

    .venv/bin/python -m bench.workflow_peers [--stages 1000] [--rounds 5] [--folder DIR] [--venvs DIR]

Each peer is installed with pip into a venv of its own in the folder, and left out if that fails; `--venvs` keeps them
for another run. Figures are medians of interleaved rounds; ratios and shares of the machine's own limit are taken
within a round. Ours is durable (SQLite, an fsync per batch) and captures logs; Dask keeps nothing.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Protocol

from bench import ceiling
from bench.cluster import Cluster
from bench.dag import Dag, depth, random_dag
from bench.figures import number
from bench.machine import Machine, describe
from bench.partner import Partner
from bench.session import Session
from bench.workflows import as_workflow, submit_workflow, wait_workflow

SLOTS = 2
PINS = {
    "Dask": ["distributed==2026.8.0"],
    "Snakemake": ["snakemake==9.27.1"],
    "Prefect": ["prefect==3.8.8", "fastapi==0.139.0"],  # it does not start with the newest FastAPI
}
AHEAD = {"Dask": 1.0, "Snakemake": 10.0, "Prefect": 1.0}
_FOLDER = Path(__file__).parent
_RULES = """
AFTER = {dag}
rule all:
    input: [f"out/{{n}}" for n in range(len(AFTER))]
rule stage:
    output: touch("out/{{n}}")
    input: lambda wildcards: [f"out/{{n}}" for n in AFTER[int(wildcards.n)]]
    shell: "/bin/true"
"""


class Peer(Protocol):
    """Something that runs a DAG."""

    def run(self, dag: Dag) -> float:
        """Seconds from the submission to the end of the last stage."""
        ...

    def stop(self) -> None: ...


class Ours:
    """A coordinator and a runner, as users start them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def run(self, dag: Dag) -> float:
        body = as_workflow(dag)
        with self._cluster.connect() as rest:
            began = time.perf_counter()
            wait_workflow(rest, submit_workflow(rest, body))
            return time.perf_counter() - began

    def stop(self) -> None:
        """The session does."""


class Driven:
    """A peer whose driver exchanges lines with us: Dask, Prefect."""

    def __init__(self, python: str, script: str, folder: Path) -> None:
        self._partner = Partner([python, str(_FOLDER / script), str(SLOTS)], folder, script)
        self._partner.hear()  # it has run a few stages by then

    def run(self, dag: Dag) -> float:
        return float(self._partner.ask({"dag": dag})["seconds"])

    def stop(self) -> None:
        self._partner.stop()


class Snakemake:
    """It has no server: each run is one command, with its start. Its record are the files that stages touch."""

    def __init__(self, python: str, folder: Path) -> None:
        self._words = [python, "-m", "snakemake", "--cores", str(SLOTS), "--quiet", "all"]
        self._folder = folder
        self._runs = 0
        self.run([[], [0]])

    def run(self, dag: Dag) -> float:
        self._runs += 1
        folder = self._folder / str(self._runs)
        folder.mkdir()
        (folder / "Snakefile").write_text(_RULES.format(dag=dag))
        began = time.perf_counter()
        with (folder / "log").open("wb") as log:
            subprocess.run(self._words, cwd=folder, stdout=log, stderr=log, check=True)
        return time.perf_counter() - began

    def stop(self) -> None:
        """Nothing of it is left."""


def main() -> int:
    options = _options()
    folder = Path(tempfile.mkdtemp(prefix="phalanx-peers-", dir=options.folder))
    session = Session(Machine(), folder, quick=False, with_ray=False)
    peers: dict[str, Peer] = {}
    try:
        peers["Phalanx"] = Ours(session.cluster(SLOTS))
        for name in PINS:
            if (peer := _started(name, options.venvs or folder, folder)) is not None:
                peers[name] = peer
        dag = random_dag(options.stages)
        peers["Phalanx"].run(random_dag(200))  # the first tasks of a cluster pay for what is loaded late
        rounds = [_round(session, peers, dag) for _ in range(options.rounds)]
        return _report(dag, rounds)
    finally:
        for peer in peers.values():
            peer.stop()
        session.close()
        shutil.rmtree(folder, ignore_errors=True)


def _round(session: Session, peers: dict[str, Peer], dag: Dag) -> dict[str, float]:
    """Stages a second by name, and the machine's own limit."""
    session.settle()
    found: dict[str, float] = {}
    limits: list[float] = []
    for name, peer in peers.items():
        limits.append(ceiling.measure(len(dag)).per_s)
        found[name] = len(dag) / peer.run(dag)
    limits.append(ceiling.measure(len(dag)).per_s)
    found["limit"] = median(limits)
    print("  ".join(f"{name} {number(per_s)}/s" for name, per_s in found.items()), flush=True)
    return found


def _started(name: str, venvs: Path, folder: Path) -> Peer | None:
    """Install a peer and start it; None, with the reason on the terminal, if it does not run here."""
    python = venvs / name.lower() / "bin" / "python"
    work = folder / f"{name.lower()}-work"
    work.mkdir()
    os.environ["PREFECT_HOME"] = str(folder / "prefect-home")
    os.environ["PREFECT_LOGGING_LEVEL"] = "ERROR"
    try:
        if not python.exists():
            print(f"installing {' '.join(PINS[name])}", flush=True)
            subprocess.run([sys.executable, "-m", "venv", str(python.parents[1])], check=True)
            subprocess.run([str(python), "-m", "pip", "-qq", "install", *PINS[name]], check=True)
        if name == "Snakemake":
            return Snakemake(str(python), work)
        return Driven(str(python), f"{name.lower()}_peer.py", work)
    except (subprocess.CalledProcessError, RuntimeError, OSError) as error:
        print(f"{name} does not run here: {str(error)[-1000:]}", flush=True)
        return None


def _report(dag: Dag, rounds: list[dict[str, float]]) -> int:
    print("\n".join(f"{name}: {value}" for name, value in describe()))
    print(f"\n{len(dag):,} stages, {depth(dag)} deep, {SLOTS} slots, {len(rounds)} rounds; medians\n")
    print("| | stages/s | share of the spawn limit | ours is ahead | target |\n|---|---|---|---|---|")
    missed = 0
    for name in [each for each in rounds[0] if each != "limit"]:
        per_s = median(each[name] for each in rounds)
        share = median(each[name] / each["limit"] for each in rounds)
        ratios = [each["Phalanx"] / each[name] for each in rounds]
        row = [name, number(per_s), number(share), "", ""]
        if name in AHEAD:
            is_met = median(ratios) > AHEAD[name]
            missed += not is_met
            row[3] = f"{number(median(ratios))} × ({number(min(ratios))} to {number(max(ratios))})"
            row[4] = f"> {AHEAD[name]:g} ×: {'met' if is_met else 'MISSED'}"
        print(f"| {' | '.join(row)} |")
    limit = median(each["limit"] for each in rounds)
    print(f"| raw posix_spawn limit | {number(limit)} | 1 | | |")
    return int(missed > 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--stages", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=_FOLDER.parents[1], help="a folder on a real disk")
    parser.add_argument("--venvs", type=Path, help="where the peers are, or are installed and stay")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
