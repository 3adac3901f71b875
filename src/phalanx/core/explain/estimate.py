"""How long a workflow will take and what it will cost, by earlier runs, so that limits it cannot keep are refused.

A stage is known by its name and those of its workflow and user, or else by its task type and models
(`core/model/run_times.py`); of one that never ran, its time limit is taken. Two numbers are given for each: what is
expected, with nodes used as in earlier runs, and the least, with every stage on the nodes where it was fastest or
cheapest. Neither counts the time that stages wait for room, nor attempts that fail.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from phalanx.core.cluster.stage_dispatch import context_names
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.workflows import WorkflowState
from phalanx.core.model.amounts import describe_seconds
from phalanx.core.model.cost import cost_rate
from phalanx.core.model.dispatch import Dispatch
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.resources import Capacity, Request
from phalanx.core.model.run_times import SAMPLES_MIN, hardware_class, stage_kind, work_kind
from phalanx.core.model.workflow import Stage, Workflow

NAMED_MAX = 5  # stages that a sentence names
REQUESTS_MAX = 200  # different requests of one workflow that are compared with the nodes

Samples = Mapping[str, tuple[int, float]]


class Estimate(Struct, frozen=True):
    """Of a whole workflow. `unknown` are the stages that count with nothing, since nothing is known of them."""

    least_s: float = 0.0
    expected_s: float = 0.0
    least_cost: float = 0.0
    expected_cost: float = 0.0
    unknown: tuple[str, ...] = ()

    def never(self, workflow: Workflow, now: float) -> Reason | None:
        """Why it cannot keep its limits even at its best, if so."""
        if workflow.deadline_at is not None and self.least_s > (
            left_s := max(0.0, workflow.deadline_at - now)
        ):
            text = (
                f"its deadline is {describe_seconds(left_s)} away, and by earlier runs its stages take"
                f" {describe_seconds(self.least_s)} at the least"
            )
            return Reason("DeadlineImpossible", Tier.NEVER, text, {"least_s": self.least_s})
        if workflow.budget is not None and self.least_cost > workflow.budget:
            text = (
                f"its budget is {workflow.budget:g}, and by earlier runs its stages cost {self.least_cost:.4g}"
                " at the least"
            )
            return Reason("BudgetImpossible", Tier.NEVER, text, {"least_cost": self.least_cost})
        return None

    def warnings(self, workflow: Workflow, now: float) -> list[str]:
        """What may keep it from keeping its limits."""
        found: list[str] = []
        if workflow.deadline_at is not None and self.expected_s > (
            left_s := max(0.0, workflow.deadline_at - now)
        ):
            took = describe_seconds(self.expected_s)
            found.append(
                f"its deadline is {describe_seconds(left_s)} away; by earlier runs it takes {took}, waits not counted"
            )
        if workflow.budget is not None and self.expected_cost > workflow.budget:
            found.append(
                f"its budget is {workflow.budget:g}; by earlier runs it costs {self.expected_cost:.4g}"
            )
        if workflow.is_limited and self.unknown:
            named = ", ".join(self.unknown[:NAMED_MAX])
            more = len(self.unknown) - NAMED_MAX
            found.append(
                "whether it keeps its limits is not known: no earlier run and no time limit is known of"
                f" {named}{f' and {more} more' if more > 0 else ''}"
            )
        return found


def estimate(state: ClusterState, workflow: Workflow) -> Estimate:
    """How long a workflow takes that is submitted now, and what it costs."""
    nodes = _Nodes(state)
    stages = [_StageEstimate.of(state, nodes, workflow, stage) for stage in workflow.stages]
    least, expected = [each.least_s for each in stages], [each.expected_s for each in stages]
    return Estimate(
        max(_longest_path(workflow, least), nodes.busy_s(workflow, least)),
        max(_longest_path(workflow, expected), nodes.busy_s(workflow, expected)),
        sum(each.least_cost for each in stages),
        sum(each.expected_cost for each in stages),
        tuple(stage.name for stage, each in zip(workflow.stages, stages, strict=True) if not each.is_known),
    )


class _StageEstimate(Struct, frozen=True):
    """Of one stage: seconds of each of its tasks, and what all of them cost."""

    least_s: float = 0.0
    expected_s: float = 0.0
    least_cost: float = 0.0
    expected_cost: float = 0.0
    is_known: bool = False

    @staticmethod
    def of(state: ClusterState, nodes: _Nodes, workflow: Workflow, stage: Stage) -> _StageEstimate:
        rates = nodes.rates(stage)
        samples = {name: known for name, known in _samples(state, workflow, stage).items() if name in rates}
        if not samples:
            limit_s = stage.job.time_limit_s
            if limit_s is None or not rates:
                return _StageEstimate()
            most = max(max(each) for each in rates.values())
            return _StageEstimate(0.0, limit_s, 0.0, limit_s * most, is_known=True)
        runs = sum(count for count, _ in samples.values())
        expected_s = sum(count * mean for count, mean in samples.values()) / runs
        expected_cost = (
            sum(count * mean * sum(rates[name]) / len(rates[name]) for name, (count, mean) in samples.items())
            / runs
        )
        if any(samples.get(name, (0, 0.0))[0] < SAMPLES_MIN for name in rates):  # it may be faster elsewhere
            return _StageEstimate(0.0, expected_s, 0.0, expected_cost, is_known=True)
        least_s = min(mean for _, mean in samples.values())
        least_cost = min(mean * min(rates[name]) for name, (_, mean) in samples.items())
        return _StageEstimate(least_s, expected_s, least_cost, expected_cost, is_known=True)


def _samples(state: ClusterState, workflow: Workflow, stage: Stage) -> Samples:
    """What is known of runs of a stage: of the same one in earlier workflows, or else of its type and models."""
    kind = stage_kind(workflow.user, workflow.name, stage.name)
    if workflow.name and (found := state.bindings.stage_times.samples(kind)):
        return found
    if not stage.task_type:
        return {}
    asked = Dispatch(task_type=stage.task_type, context=context_names(stage.spec) if stage.spec else ())
    return state.bindings.run_times.samples(work_kind(workflow.user, asked))


class _Nodes:
    """Which classes of nodes could hold a stage, and what a second of it costs there."""

    def __init__(self, state: ClusterState) -> None:
        self._table = state.table
        capacities = [ledger.capacity for ledger in state.table.ledgers]
        # Nodes that cost and hold the same: a number, their class, and what each has.
        self._kinds: dict[tuple[object, ...], tuple[int, str, Capacity]] = {}
        self._kind_of = np.array([self._kind(each) for each in capacities], dtype=np.int64)
        self._known: dict[tuple[tuple[Request, int], ...], dict[str, set[float]]] = {}
        self._cores = float(sum(each.cores for each in capacities))
        self._devices = sum(len(each.devices) for each in capacities)

    def rates(self, stage: Stage) -> dict[str, set[float]]:
        """By class of nodes that could hold every group of the stage, what a second of all its tasks costs."""
        asked = tuple((group.request, group.tasks) for group in stage.job.groups)
        if asked not in self._known and len(self._known) < REQUESTS_MAX:
            self._known[asked] = self._rates(asked)
        return self._known.get(asked, {})

    def _rates(self, asked: tuple[tuple[Request, int], ...]) -> dict[str, set[float]]:
        fitting = np.ones(len(self._kind_of), dtype=bool)
        for request, _ in asked:
            fitting &= self._could_hold(request)
        fits = np.bincount(self._kind_of[fitting], minlength=len(self._kinds))
        found: dict[str, set[float]] = {}
        for number, name, capacity in self._kinds.values():
            if fits[number]:
                rate = sum(
                    tasks * cost_rate(capacity, each.cores, each.memory_bytes, each.gpus)
                    for each, tasks in asked
                )
                found.setdefault(name, set()).add(rate)
        return found

    def _could_hold(self, request: Request) -> NDArray[np.bool_]:
        """By row, whether the node could hold one such task if it were empty."""
        if request.target is not None:
            return self._table.ever(request)[0] > 0
        found: NDArray[np.bool_] = self._table.columns.slots(request, every=True) > 0
        return found

    def _kind(self, capacity: Capacity) -> int:
        name = hardware_class(capacity)
        key = name, capacity.memory_bytes, capacity.cost_per_hour, capacity.slots
        return self._kinds.setdefault(key, (len(self._kinds), name, capacity))[0]

    def busy_s(self, workflow: Workflow, seconds: list[float]) -> float:
        """How long all nodes together take for the work, if no core and no device of them is ever idle."""
        cores = devices = 0.0
        for stage, each in zip(workflow.stages, seconds, strict=True):
            for group in stage.job.groups:
                cores += each * group.tasks * group.request.cores
                devices += each * group.tasks * group.request.gpus
        by_cores = cores / self._cores if self._cores else 0.0
        return max(by_cores, devices / self._devices if self._devices else 0.0)


def _longest_path(workflow: Workflow, seconds: list[float]) -> float:
    """The longest of the chains of stages that build on each other."""
    flow, ends = WorkflowState(workflow), list(seconds)
    ordered = list(flow.ready)
    for stage in ordered:  # it grows while it is read
        for dependent in flow.dependents[stage]:
            ends[dependent] = max(ends[dependent], ends[stage] + seconds[dependent])
            flow.missing[dependent] -= 1
            if not flow.missing[dependent]:
                ordered.append(dependent)
    return max(ends, default=0.0)
