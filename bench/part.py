"""One part of the benchmarks, once, as one line of JSON: for `bench.compare`, which starts it for two trees.

Started by its path, so that PYTHONPATH chooses `bench` and `phalanx`: the benchmarks may be of one tree and the code
they measure of another. Before each round it prints a line and waits for one, so that two trees measure in turn. The
output has the figures by name: what each round measured, the unit, and whether more or less is better. Other
schedulers and the machine's own limits are left out: both trees have the same.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

FiguresByName = dict[str, dict[str, Any]]  # figure: {"values", "unit", "better"}
TURN = "waiting for its turn"
OTHERS = ("HyperQueue", "Ray", "posix_spawn", "with a session", "this disk")
COSTS = {"ms", "s", "MB"}  # units of which less is better, whether a target says so or not
_LINE = re.compile(r"(kill|pause|cut) × \d+, (accepted|ran): ([0-9.]+) s")


def placement(options: argparse.Namespace) -> FiguresByName:
    """`bench.placement`: members a second and the time of a decision, for every size of gang and single tasks."""
    from bench import placement as bench

    nodes, members, figures_by_name = (2048, 4000, {}) if options.quick else (5000, 40_000, {})
    shots: dict[str, Callable[[], Any]] = {
        f"gangs of {size} × {gpus} GPU": partial(
            bench.fill_with_gangs, bench.a_cluster(nodes), size, gpus, must, members
        )
        for size, gpus, must in bench.CELLS
    }
    shots["single tasks"] = partial(bench.fill_with_tasks, bench.a_cluster(nodes), members)
    for name, measure in shots.items():
        wait_for_turn()
        shot = measure()
        figures_by_name[f"{name}, members"] = _figure(
            [shot.members / max(shot.cpu_s, 1e-9)], "/CPU s", "more"
        )
        decisions = sorted(cpu * 1000 for _, cpu in shot.decisions)
        figures_by_name[f"{name}, p50"] = _figure([median(decisions)], "ms", "less")
        figures_by_name[f"{name}, p99"] = _figure([decisions[int(0.99 * (len(decisions) - 1))]], "ms", "less")
    return figures_by_name


def failover(options: argparse.Namespace) -> FiguresByName:
    """`bench.failover`: seconds until a submit is accepted and its task runs, after each kind of harm."""
    counts = ("1", "1", "1") if options.quick else ("5", "3", "3")
    words = ["--kills", counts[0], "--pauses", counts[1], "--cuts", counts[2]]
    found = subprocess.run(
        [sys.executable, "-m", "bench.failover", *words], capture_output=True, text=True, check=False
    )
    figures_by_name = {
        f"after a {kind}: {what}": _figure([float(value)], "s", "less")
        for kind, what, value in _LINE.findall(found.stdout)
    }
    if not figures_by_name:
        raise RuntimeError((found.stdout + found.stderr)[-1000:])
    return figures_by_name


def cell(name: str) -> Callable[[argparse.Namespace], FiguresByName]:
    """One cell of `make bench`."""

    def measure(options: argparse.Namespace) -> FiguresByName:
        from bench.machine import Machine
        from bench.session import Session

        folder = Path(tempfile.mkdtemp(prefix="phalanx-part-", dir=options.folder))

        class InTurn(Session):
            """Every cell settles before a round."""

            def settle(self) -> None:
                wait_for_turn()
                super().settle()

        session = InTurn(Machine(), folder, quick=options.quick, with_ray=False)
        try:
            # By its own module, since others may measure what an older tree does not have.
            figures = import_module(f"bench.{name}").measure(session).figures
        finally:
            session.close()
            if not options.keep:
                shutil.rmtree(folder, ignore_errors=True)
        return _by_name(figures)

    return measure


def wait_for_turn() -> None:
    print(TURN, flush=True)
    sys.stdin.readline()


PARTS: dict[str, Callable[[argparse.Namespace], FiguresByName]] = {
    "placement": placement,
    **{
        name: cell(name)
        for name in ("throughput", "latency", "accept", "coordinator", "memory", "recovery", "gangs")
    },
    "failover": failover,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--keep", action="store_true", help="do not remove the files: see bench.compare")
    parser.add_argument(
        "--no-cgroup", action="store_true", help="no cgroup for tasks that have no memory limit"
    )
    parser.add_argument("--source", type=Path, help="where phalanx has to come from")
    options = parser.parse_args()
    import phalanx

    if options.source and not Path(str(phalanx.__file__)).resolve().is_relative_to(options.source.resolve()):
        raise SystemExit(f"phalanx was taken from {phalanx.__file__} instead of {options.source}")
    if options.no_cgroup:
        _leave_cgroups_out()
    print(json.dumps(PARTS[options.part](options)), flush=True)
    return 0


def _leave_cgroups_out() -> None:
    """A tree that makes a cgroup for every task makes them for memory limits only, as older ones do."""
    from bench.cluster import Cluster
    from phalanx.settings import VARIABLES

    if "PHALANX_RUNNER_CGROUPS" in VARIABLES:
        Cluster.runner_settings["cgroups"] = "memory"


def _by_name(figures: Iterable[Any]) -> FiguresByName:
    """Our own figures. Several of one name are distinguished by the one they follow."""
    figures_by_name: FiguresByName = {}
    before = ""
    for figure in figures:
        if any(word in figure.name for word in OTHERS):
            continue
        name = figure.name
        if name in figures_by_name or name.startswith("the same"):
            name = f"{before}: {name}"
        else:
            before = name
        better = "less" if figure.unit in COSTS else figure.better
        figures_by_name[name] = _figure(figure.values, figure.unit, better)
    return figures_by_name


def _figure(values: list[float], unit: str, better: str) -> dict[str, Any]:
    return {"values": values, "unit": unit, "better": better}


if __name__ == "__main__":
    sys.exit(main())
