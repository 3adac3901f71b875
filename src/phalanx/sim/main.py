"""`python -m phalanx.sim`: runs many seeds, or one seed with its trace. Exit code 1 if a promise was broken."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from multiprocessing import get_context

from phalanx.clock import SystemClock
from phalanx.sim.faults import FAULTS
from phalanx.sim.report import SeedReport, describe_failure
from phalanx.sim.trial import Result, run

FAILURES_MAX = 5
PROGRESS_EVERY = 50


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.faults == "list":
        print("\n".join(f"{name:22} {_summary(name)}" for name in FAULTS))
        return 0
    faults = None if options.faults is None else _chosen(options.faults)
    if faults is not None and (unknown := [name for name in faults if name not in FAULTS]):
        print(f"no such fault: {unknown[0]}; --faults list shows them", file=sys.stderr)
        return 2
    if options.seed is not None:
        return _one(options.seed, faults, options.trace)
    return _many(range(options.start, options.start + options.seeds), faults, options.jobs)


def _one(seed: int, faults: list[str] | None, trace: bool) -> int:
    result = run(seed, faults, print if trace else None)
    print(f"seed {seed}: trace {result.trace_hash}, {result.virtual_s:.0f} virtual seconds")
    if result.is_good:
        return 0
    print(describe_failure(result, faults))
    return 1


def _many(seeds: range, faults: list[str] | None, jobs: int) -> int:
    clock = SystemClock()
    report, began = SeedReport(), clock.monotonic()
    for result in _results(seeds, faults, jobs):
        report.add(result)
        if not result.is_good:
            print(describe_failure(result, faults), flush=True)
            if len(report.failures) >= FAILURES_MAX:
                print(f"{FAILURES_MAX} seeds failed, the others are not tried")
                break
        if report.seeds % PROGRESS_EVERY == 0:
            print(f"{report.seeds} of {len(seeds)} seeds, {len(report.failures)} failed", flush=True)
    print(report.table(clock.monotonic() - began))
    return 1 if report.failures else 0


def _results(seeds: range, faults: list[str] | None, jobs: int) -> Iterator[Result]:
    """The results in order of seed, so that two runs print the same."""
    trial = partial(run, faults=faults)
    if jobs <= 1:
        yield from map(trial, seeds)
        return
    with get_context("fork").Pool(jobs) as pool:
        yield from pool.imap(trial, seeds, chunksize=4)


def _chosen(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _summary(name: str) -> str:
    return (FAULTS[name].__doc__ or "").strip().partition("\n")[0]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, metavar="N", help="how many seeds to try (100)")
    parser.add_argument("--from", type=int, default=0, dest="start", metavar="S", help="the first seed (0)")
    parser.add_argument("--seed", type=int, metavar="S", help="only this seed; prints the hash of its trace")
    parser.add_argument("--trace", action="store_true", help="with --seed: print its trace")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="number of processes (2)")
    parser.add_argument("--faults", metavar="A,B", help="only these faults; 'list' shows them, '' means none")
    return parser
