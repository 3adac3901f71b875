"""`make bench`: every speed target of this repository, measured and written to bench/RESULTS.md.

    scripts/bench [--quick] [--only CELL...] [--with-ray] [--folder DIR] [--out FILE]

Figures are medians of interleaved rounds (ours, theirs, the machine's own limit, and again), and ratios are
taken within a round, because this kind of machine changes its speed by a quarter between two minutes. State is
durable and logs are captured in every figure of ours. `--quick` shows that the cells work; its figures mean
nothing.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # so that this file can be run by its name

from bench import (  # noqa: E402
    accept,
    calls,
    cgroup,
    coordinator,
    gangs,
    latency,
    log_start,
    memory,
    recovery,
    sweep_rows,
    throughput,
    usage,
    workflows,
)
from bench.figures import Chapter  # noqa: E402
from bench.machine import Machine, filesystem  # noqa: E402
from bench.report import write  # noqa: E402
from bench.session import Session  # noqa: E402

CELLS: dict[str, Callable[[Session], Chapter]] = {
    "throughput": throughput.measure,
    "workflows": workflows.measure,
    "latency": latency.measure,
    "accept": accept.measure,
    "coordinator": coordinator.measure,
    "memory": memory.measure,
    "recovery": recovery.measure,
    "gangs": gangs.measure,
    "cgroup": cgroup.measure,
    "calls": calls.measure,
    "usage": usage.measure,
    "sweep_rows": sweep_rows.measure,
    "log_start": log_start.measure,
}


def main() -> int:
    options = _options()
    folder = Path(tempfile.mkdtemp(prefix="phalanx-bench-", dir=options.folder))
    if filesystem(folder) in ("tmpfs", "ramfs", "overlay"):
        folder.rmdir()
        print(f"{options.folder} is not a disk: give one with --folder, durable state is part of the figures")
        return 2
    session = Session(Machine(), folder, quick=options.quick, with_ray=options.with_ray)
    chapters: list[Chapter] = []
    try:
        for name, measure in CELLS.items():
            chapters.append(_run(name, measure, session, options.only))
            write(options.out, session, chapters)  # after every cell, so that an interrupted run is not lost
    finally:
        session.close()
        if not options.keep:  # only now: deleting beside a measurement slows the filesystem down
            shutil.rmtree(folder, ignore_errors=True)
    print(f"written to {options.out}")
    return int(any(chapter.not_run.startswith("it failed") for chapter in chapters))


def _run(name: str, measure: Callable[[Session], Chapter], session: Session, only: list[str]) -> Chapter:
    if only and name not in only:
        return Chapter(name, not_run="not asked for (--only)")
    print(f"{time.strftime('%H:%M:%S')} {name}", flush=True)
    began = time.monotonic()
    session.machine.take_note()
    try:
        chapter = measure(session)
    except (RuntimeError, OSError) as error:  # the other cells may still work
        print(f"    failed: {error}", flush=True)
        return Chapter(name, not_run=f"it failed: {str(error).splitlines()[0][:200]}")
    chapter.took_s = time.monotonic() - began
    chapter.weather = session.machine.weather()
    for figure in chapter.figures:
        print(f"    {figure}", flush=True)
    return chapter


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small numbers: does it work at all?")
    parser.add_argument("--only", nargs="+", default=[], choices=CELLS, metavar="CELL", help=" ".join(CELLS))
    parser.add_argument(
        "--with-ray", action="store_true", help="fetch Ray, and Dask, into venvs of their own as well"
    )
    parser.add_argument("--folder", type=Path, default=ROOT.parent, help="a folder on a real disk")
    parser.add_argument("--keep", action="store_true", help="leave state and logs there afterwards")
    parser.add_argument("--out", type=Path, default=ROOT / "bench" / "RESULTS.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
