"""Counts of choices by dispatch modes: the strategy, models that were loaded already, tasks that were merged."""

from __future__ import annotations

from phalanx.core.model.dispatch import LANE, DispatchNote

STRATEGIES = (
    "best_fit", "first_fit", "min_satisfying", "stage_weight_affinity", "static_worker", "fixed_pipeline",
    "static_round_robin", LANE,
)  # fmt: skip
STICKY_WORKER_BUSY = "sticky_worker_busy"  # the requeue reason of a stage that begins to wait for one node


class DispatchTally:
    """What was counted so far."""

    def __init__(self) -> None:
        self.by_strategy = dict.fromkeys(STRATEGIES, 0)
        self.reused = 0  # choices for a node that had some of what the task loads
        self.merged = 0  # tasks that ran as a part of others

    def chosen(self, note: DispatchNote, merged: int) -> None:
        self.by_strategy[note.strategy] = self.by_strategy.get(note.strategy, 0) + 1
        self.reused += note.reused > 0
        self.merged += merged
