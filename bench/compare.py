"""Two commits against each other, interleaved in one run: is any figure worse?

    .venv/bin/python -m bench.compare 89f48d8 HEAD [--rounds 5] [--only placement,throughput] [--quick] [--no-cgroup]
        [--folder DIR]

Each commit is checked out beside the other. A part is set up in both and then measured in turn, a round of one and a
round of the other, while the other's processes are idle: this kind of machine changes its speed by a quarter within a
minute. All of it is done `--rounds` times, and what counts is the median of all ratios of two rounds that were
neighbours. Nothing is removed before the end: for some minutes after many files were removed ext4 makes new ones at
half the speed. The benchmarks of the tree that this is started in measure both, so that the ruler is one; where
they do not run against the older code, that part is measured by the older tree's own benchmarks, and the table says
so. Both use this interpreter and its packages. `--no-cgroup` leaves out what a cgroup for every task costs, for a
comparison with code that makes none; `make bench` has a row for that cost.
The exit code is 1 if a figure is worse by more than 10 %, 2 if something could not be measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from compileall import compile_dir
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench.figures import number
from bench.part import PARTS, TURN, FiguresByName

ROOT = Path(__file__).resolve().parents[1]
WORSE = 0.10


@dataclass
class Side:
    """One commit, its folder, and the parts that its own benchmarks measure."""

    name: str
    tree: Path
    own: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)


@dataclass
class Row:
    """One figure, as every round of each side measured it."""

    part: str
    name: str
    unit: str
    better: str
    values: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))

    @property
    def ratio(self) -> float:
        """The newer over the older: 1.2 is a fifth more. The median over pairs of neighbouring rounds."""
        return median(
            after / before if before else float("inf") if after else 1.0
            for before, after in zip(*self.values, strict=False)
        )

    @property
    def is_worse(self) -> bool:
        return self.ratio > 1 + WORSE if self.better == "less" else self.ratio < 1 - WORSE

    def __str__(self) -> str:
        before, after = (number(median(each)) for each in self.values)
        mark = "  WORSE" if self.is_worse else ""
        return f"  {self.name:<44} {before:>10} {after:>10} {self.unit:<8} × {self.ratio:.2f}{mark}"


class Measuring:
    """One part being measured in one tree: by our benchmarks, or by its own if ours do not run there."""

    def __init__(self, side: Side, part: str, words: Sequence[str]) -> None:
        self.side = side
        self.part = part
        self.told: FiguresByName | None = None
        self._words = words
        self._rulers = [side.tree] if part in side.own else [ROOT, side.tree]
        self._errors = side.tree / f"{part}.errors"
        self._process: subprocess.Popen[str] | None = None

    def advance(self) -> bool:
        """Let it run until it waits for its next turn; False at its end."""
        if self._process is None:
            self._process = self._start()
        elif self._process.stdin is not None:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        last = ""
        for line in self._process.stdout or ():
            if line.strip() == TURN:
                return True
            last = line
        with self._process:  # it has ended; its pipes are closed
            pass
        if self._process.returncode == 0:
            self.told = json.loads(last)
            self.side.own |= {self.part} if self._rulers[0] is self.side.tree else set()
            return False
        del self._rulers[0]
        self._process = None
        if self._rulers:
            return self.advance()
        self.side.failed[self.part] = (self._errors.read_text().splitlines() or ["no word"])[-1][:200]
        return False

    def _start(self) -> subprocess.Popen[str]:
        """Start it with the code of one tree and the benchmarks of one; it runs until it waits for its first turn."""
        driver = ["-P", str(ROOT / "bench" / "part.py"), self.part, "--source", str(self.side.tree)]
        path = os.pathsep.join((str(self.side.tree / "src"), str(self._rulers[0])))
        with self._errors.open("w") as errors:
            return subprocess.Popen(
                [sys.executable, *driver, *self._words],
                env=os.environ
                | {"PYTHONPATH": path, "PATH": f"{ROOT}/.venv/servers/bin:{os.environ['PATH']}"},
                cwd=self.side.tree,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )


def compare(sides: Sequence[Side], parts: Sequence[str], rounds: int, words: Sequence[str]) -> list[Row]:
    """Measure every part in both, in turn."""
    rows: dict[tuple[str, str], Row] = {}
    for at in range(rounds):
        for part in parts:
            for which, told in enumerate(measured(sides, part, words)):
                for name, each in (told or {}).items():
                    row = rows.setdefault((part, name), Row(part, name, each["unit"], each["better"]))
                    row.values[which].extend(each["values"])
            print(f"round {at + 1} of {rounds}: {part}", file=sys.stderr, flush=True)
    return [row for row in rows.values() if all(row.values)]


def measured(sides: Sequence[Side], part: str, words: Sequence[str]) -> list[FiguresByName | None]:
    """One part, once in every tree, one at a time; the first one changes from turn to turn."""
    all_of_them = [Measuring(side, part, words) for side in sides if part not in side.failed]
    at_work = all_of_them
    while at_work:
        at_work = [each for each in at_work if each.advance()][::-1]
    return [next((each.told for each in all_of_them if each.side is side), None) for side in sides]


def report(sides: Sequence[Side], rows: Sequence[Row]) -> int:
    """Print the table; returns the exit code."""
    print(f"{sides[0].name} → {sides[1].name}")
    for part in dict.fromkeys(row.part for row in rows):
        own = [side.name for side in sides if part in side.own]
        print(part + (f" ({', '.join(own)} measured by its own benchmarks)" if own else ""))
        for row in rows:
            if row.part == part:
                print(row)
    failed = {f"{part} of {side.name}": why for side in sides for part, why in side.failed.items()}
    for what, why in failed.items():
        print(f"not measured: {what}: {why}")
    worse = [row for row in rows if row.is_worse]
    print(f"{len(rows)} figures, {len(worse)} worse by more than {WORSE:.0%}")
    return 2 if failed else int(bool(worse))


def _checked_out(commit: str, folder: Path, stack: ExitStack) -> Side:
    short = _git("rev-parse", "--short", f"{commit}^{{commit}}").strip()
    tree = folder / f"{len(list(folder.iterdir()))}-{short}"
    _git("worktree", "add", "--detach", str(tree), short)
    stack.callback(_git, "worktree", "remove", "--force", str(tree))
    # Old benchmarks start helpers with only the root of their tree on the path.
    (tree / "phalanx").symlink_to(tree / "src" / "phalanx")
    # Otherwise every command would compile what it imports, where nothing may be written beside the sources.
    compile_dir(tree / "src", quiet=1)
    return Side(f"{commit} ({short})" if commit != short else short, tree)


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.compare", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("before", help="a commit")
    parser.add_argument("after", nargs="?", default="HEAD", help="another one (HEAD)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, with commas: {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="small numbers: does it work at all?")
    parser.add_argument(
        "--no-cgroup", action="store_true", help="no cgroup for tasks that have no memory limit"
    )
    parser.add_argument("--folder", type=Path, default=ROOT.parent, help="a folder on a real disk")
    options = parser.parse_args()
    parts = options.only.split(",")
    if unknown := [part for part in parts if part not in PARTS]:
        parser.error(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    folder = Path(tempfile.mkdtemp(prefix="phalanx-compare-", dir=options.folder))
    words = ["--folder", str(folder), "--keep", *(["--quick"] if options.quick else [])]
    words += ["--no-cgroup"] if options.no_cgroup else []
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        sides = [_checked_out(commit, folder, stack) for commit in (options.before, options.after)]
        return report(sides, compare(sides, parts, options.rounds, words))


if __name__ == "__main__":
    sys.exit(main())
