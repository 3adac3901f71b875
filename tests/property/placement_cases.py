"""Small clusters by seed, and the laws run over many of them.

    python -m tests.property.placement_cases --cases 20000

tries the laws of `placement_laws.py` on that many cases, and draws the first that breaks one. The seed is enough:
the same number makes the same cluster everywhere. How a case is made is in `placement_maker.py`.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections import Counter
from time import process_time

from phalanx.core.explain.evictions import make_room_or_why
from phalanx.core.explain.shortage import place_gang
from tests.property.placement_laws import Trial
from tests.property.placement_maker import Maker
from tests.property.placement_stage import Case, drawing


def a_case(seed: int, crowded: bool = False, knotty: bool = False) -> Case:
    """The case of a seed. A crowded one has little room and many tenants; in a knotty one rare things are common."""
    return Maker(seed, crowded, knotty).case()


def tried(case: Case, evicts: bool, seen: Counter[str], *, counts_best: bool = False) -> list[str]:
    """The laws that the engine breaks on one case."""
    trial = Trial(case, place_gang, make_room_or_why if evicts else None, seen)
    trial.counts_best = counts_best
    try:
        return trial.complaints()
    except Exception:  # whatever it is, the seed has to be reported
        return [traceback.format_exc()]


def main(argv: list[str] | None = None) -> int:
    """Run the laws over many cases; the first that breaks one is drawn, and ends the run."""
    asked = argparse.ArgumentParser(description="placement against brute force")
    asked.add_argument("--cases", type=int, default=20_000, help="half of them crowded")
    asked.add_argument("--knotty", action="store_true", help="cases in which the rare is common")
    asked.add_argument("--first", type=int, default=0, help="the seed to begin with")
    asked.add_argument(
        "--go-on", action="store_true", help="count every failing seed instead of ending at the first"
    )
    arguments = asked.parse_args(argv)
    seen: Counter[str] = Counter()
    failing = 0
    for number in range(arguments.cases):
        seed, crowded, knotty = arguments.first + number // 2, bool(number % 2), arguments.knotty
        case = a_case(seed, crowded, knotty)
        if complaints := tried(case, crowded, seen, counts_best=seed % 10 == 0):
            failing += 1
            say(f"a_case({seed}, crowded={crowded}, knotty={knotty}) breaks:", *complaints)
            if not arguments.go_on:
                say(drawing(case))
                return 1
        if (number + 1) % 2000 == 0:
            say(f"{number + 1} cases, {failing} failing, {process_time():.0f} s of CPU")
    say(*(f"{count:8} {what}" for what, count in sorted(seen.items())))
    return int(failing > 0)


def say(*lines: str) -> None:
    sys.stdout.write("\n  ".join(lines) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
