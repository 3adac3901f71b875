"""Sums over many seeds: faults injected, fences that held, gangs that started; and the text of a failure."""

from __future__ import annotations

from collections import Counter

from phalanx.sim.trial import Result

# Messages of a replaced coordinator or an earlier incarnation that were seen and refused.
FENCES = ("fenced report", "refused order", "refused coordinator", "fenced append")

# What gangs and urgent jobs did: a simulator in which one of these never happens does not test it.
ACTIONS = (
    "gang released",
    "formation recalled",
    "eviction for room",
    "eviction by a user",
    "promise kept",
    "promise withdrawn",
    "promise displaced",
    "whole restart",
    "restart of a replica",
    "job that starts after others",
    "job that could never start",
    "task that could never start",
    "workflow",
    "stage",
    "stage that could never begin",
    "stage skipped",
    "workflow cancelled",
    "workflow retried",
    "workflow stopped at a limit",
    "dispatch to a node with the model",
    "dispatch by lane",
    "dispatch by static_worker",
    "dispatch by fixed_pipeline",
    "dispatch by static_round_robin",
    "dispatch by stage_weight_affinity",
    "wait for a sticky node",
    "login opened",
    "login moved",
    "merged task completed",
    "merged task failed",
    "merged task that runs by itself",
    "lane shared by stages",
    "stage that left a shared lane unfinished",
    "node disabled",
    "node enabled",
)


class SeedReport:
    """Sums over seeds."""

    def __init__(self) -> None:
        self.seeds = 0
        self.failures: list[Result] = []
        self._totals: Counter[str] = Counter()
        self._seen_in: Counter[str] = Counter()
        self._virtual_s = 0.0

    def add(self, result: Result) -> None:
        self.seeds += 1
        self._virtual_s += result.virtual_s
        self._totals.update(result.counts)
        self._seen_in.update(what for what, count in result.counts.items() if count)
        if not result.is_good:
            self.failures.append(result)

    @property
    def fenced_share(self) -> float:
        """In how many of the seeds a report of an older epoch, lease or attempt was refused."""
        return self.share("fenced report")

    def share(self, what: str) -> float:
        """In how many of the seeds this was seen."""
        return self._seen_in[what] / max(1, self.seeds)

    def table(self, wall_s: float) -> str:
        lines = [f"{'':28}{'times':>8}{'in seeds':>10}"]
        faults = sorted(what for what in self._totals if what.startswith("fault "))
        lines += [self._row(what) for what in faults]
        lines.append("")
        lines += [
            self._row(what) for what in (*FENCES, "failed append", "broken connection", "repeated frame")
        ]
        lines += [self._row(what) for what in sorted(self._totals) if what.startswith("report refused")]
        lines += [self._row(what) for what in ("term", "brake", "node excluded")]
        lines.append("")
        lines += [f"{self._row(what)}{self.share(what):8.0%}" for what in ACTIONS]
        speed = f"{self.seeds / max(wall_s, 1e-9):.1f} seeds/s in {wall_s:.1f} s"
        size = f"{self._totals['tasks']} tasks, {self._totals['epochs']} epochs"
        hours = f"{self._virtual_s / 3600:.1f} virtual hours"
        lines.append(f"\n{self.seeds} seeds, {len(self.failures)} failed; {size}, {hours}")
        lines.append(f"{speed}; a stale report was refused in {self.fenced_share:.0%} of the seeds")
        return "\n".join(lines)

    def _row(self, what: str) -> str:
        return f"{what.removeprefix('fault '):28}{self._totals[what]:8}{self._seen_in[what]:10}"


def describe_failure(result: Result, faults: list[str] | None) -> str:
    """The broken promise, the end of the trace, and the command that repeats the run."""
    only = "" if faults is None else f" --faults '{','.join(faults)}'"
    return "\n".join(
        [
            "",
            *result.tail,
            "",
            f"seed {result.seed} broke a promise ({result.checker}): {result.sentence}",
            f"replay it with: scripts/simulate --seed {result.seed} --trace{only}",
            "",
        ]
    )
