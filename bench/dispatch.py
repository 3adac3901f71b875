"""Dispatch modes: how many choices a second, and what each mode makes of one mixed workload.

    python -m bench.dispatch [--rounds 5] [--seeds 5]

The first part is the adaptive mode with 500 nodes and 10,000 stages that are ready at once, from the release of the
stages to their placements, events included, store not. The second drives the same engine through virtual time, with
the workload and the model of times of `bench/dispatch_workload.py`; nodes that run nothing cost nothing, as elastic
nodes that are switched off.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from heapq import heappop, heappush
from itertools import count
from statistics import mean, median

from msgspec import Struct, json

from bench.dispatch_workload import KEPT_S, NODES, arrivals, seconds
from bench.figures import number
from phalanx.coordinator.metrics.accounts import power_of
from phalanx.coordinator.metrics.recorder import Recorder
from phalanx.coordinator.turn import Engine, Turn
from phalanx.core.cluster import events as e
from phalanx.core.cluster.decision import Send
from phalanx.core.cluster.inputs import Hello, Input, SubmitWorkflow, Tell, Tick
from phalanx.core.cluster.state import ClusterState, Timers
from phalanx.core.model.dispatch import DispatchPolicy
from phalanx.core.model.job import Command, Group, Job
from phalanx.core.model.orders import Ended, Exit, Start, Started, Status, Why
from phalanx.core.model.resources import Capacity, Device, Request
from phalanx.core.model.workflow import SPEC_VARIABLE, Stage, Workflow, workflow_id

MODES = {
    "adaptive": DispatchPolicy(sticky=True),
    "adaptive, no reuse": DispatchPolicy(reuse=False, merge=False),
    "static_worker": DispatchPolicy(mode="static_worker"),
    "fixed_pipeline": DispatchPolicy(mode="fixed_pipeline"),
    "static_round_robin": DispatchPolicy(mode="static_round_robin"),
}
READY, WORKERS = 10_000, 500
TARGET = 5000
WORKFLOWS = (120, 300, 600)  # in an hour; 300 keep the GPUs about half busy


class Outcome(Struct):
    """What became of one workload in one mode."""

    makespan_s: float
    completion_s: float  # the mean of its workflows
    cost: float
    kwh: float
    reused: int  # dispatches to a node that had the model
    loads: int
    merged: int
    dispatches: int


class Replay:
    """The engine in virtual time, with runners that do as they are told."""

    def __init__(self, policy: DispatchPolicy, seed: int, workflows: int) -> None:
        self.engine = Engine(ClusterState(Timers(dispatch=policy, lost_after_s=1e9)))
        self.state = self.engine.state
        self.state.epoch = 1
        self.recorder = Recorder()
        self._agenda: list[tuple[float, int, list[Input]]] = []
        self._order = count()
        self._loaded: dict[tuple[str, str], float] = {}
        self.loads = 0
        self._busy: dict[str, float] = {}  # since when a node runs something
        self._running: Counter[str] = Counter()
        self.cost = self.joules = 0.0
        self.begun: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        self._give([Hello(name, "a", name, capacity, []) for name, capacity in NODES.items()], 0.0)
        for at, flow in arrivals(seed, workflows):
            self.begun[flow.id] = at
            self._later(at, SubmitWorkflow(flow))

    def _later(self, at: float, *inputs: Input) -> None:
        heappush(self._agenda, (at, next(self._order), list(inputs)))

    def _give(self, inputs: list[Input], now: float) -> None:
        turn: Turn = self.engine.turn(inputs, now)
        self.recorder.observe(turn, self.state)
        for effect in turn.effects:
            if isinstance(effect, Send) and isinstance(effect.order, Start):
                self._run(effect.node, effect.order, now)
        for event in turn.events:
            if isinstance(event, e.AttemptEnded):
                self._stopped(self.state.known_names[self._node_of(event)], now)
        for id in self.begun.keys() - self.ended.keys():
            flow = self.state.workflows.get(id)
            if flow is not None and flow.is_over:
                self.ended[id] = now
        if turn.more:
            self._later(now, Tick())
        elif self.state.next_due is not None:
            self._later(max(now, self.state.next_due), Tick())

    def _node_of(self, event: e.AttemptEnded) -> int:
        nodes = self.state.jobs[event.key[0]].nodes
        assert nodes is not None
        return nodes[event.key[1]] - 1

    def _run(self, node: str, start: Start, now: float) -> None:
        job = self.state.jobs[start.key[0]].job
        spec = json.decode(job.groups[0].command.env[SPEC_VARIABLE])
        merged = json.decode(start.merged) if start.merged else []
        model = str(spec.get("model", {}).get("source", {}).get("identifier", ""))
        fresh = self._loaded.get((node, model), -KEPT_S - 1) >= now - KEPT_S
        self.loads += bool(model) and not fresh
        took = seconds(spec, len(merged), NODES[node], start.grant, job.groups[0].request.gpus, loaded=fresh)
        self._loaded[node, model] = now + took
        if not self._running[node]:
            self._busy[node] = now
        self._running[node] += 1
        own: object = {"weights": start.key[0]}
        result = {"result": own, "children": {each["task_id"]: own for each in merged}} if merged else own
        exit = Exit(Why.NONE, 0, now, now + took, result=json.encode(result).decode())
        generation = self.state.nodes[node].generation
        told = Tell(node, "a", 1, Ended(start.key, exit), generation)
        self._later(now, Tell(node, "a", 1, Started(start.key, now), generation))
        self._later(now + took, told)

    def _stopped(self, node: str, now: float) -> None:
        self._running[node] -= 1
        if not self._running[node]:
            held, power = now - self._busy[node], power_of(NODES[node])
            self.cost += held / 3600 * (NODES[node].cost_per_hour or 1.0)
            self.joules += held * (power.cpu_watts + power.gpu_watts)

    def play(self) -> Outcome:
        now = 0.0
        while self._agenda and len(self.ended) < len(self.begun):
            now, _, inputs = heappop(self._agenda)
            self._give(inputs, now)
        assert len(self.ended) == len(self.begun), "a workflow never ended"
        tally, recorder = self.recorder.dispatches, self.recorder
        completed = recorder.ended[Status.COMPLETED]
        placed = sum(tally.by_strategy.values())
        assert completed == recorder.submitted == placed + tally.merged, (
            "the counters disagree with what happened"
        )
        return Outcome(
            max(self.ended.values()),
            mean(self.ended[id] - at for id, at in self.begun.items()),
            self.cost,
            self.joules / 3.6e6,
            tally.reused,
            self.loads,
            tally.merged,
            placed,
        )


HEADS = (
    "mode", "makespan, min", "completion, s", "cost", "kWh", "dispatches", "with the model", "loads", "merged",
    "completion / adaptive", "cost / adaptive",
)  # fmt: skip


def compare(seeds: int, workflows: int) -> None:
    """One line for each mode, medians over the seeds, and how much better the adaptive one is."""
    rows = {
        mode: [Replay(policy, seed, workflows).play() for seed in range(seeds)]
        for mode, policy in MODES.items()
    }
    print(f"\n{workflows} workflows in an hour:\n\n| {' | '.join(HEADS)} |\n{'|---' * len(HEADS)}|")
    best = rows["adaptive"]
    for mode, found in rows.items():
        counts = ("dispatches", "reused", "loads", "merged")
        shown = [
            f"{median(each.makespan_s for each in found) / 60:.0f}",
            f"{median(each.completion_s for each in found):.0f}",
            f"{median(each.cost for each in found):.1f}",
            f"{median(each.kwh for each in found):.1f}",
            *(f"{median(getattr(each, name) for each in found):.0f}" for name in counts),
            f"{median(a.completion_s / b.completion_s for a, b in zip(found, best, strict=True)):.2f}",
            f"{median(a.cost / b.cost for a, b in zip(found, best, strict=True)):.2f}",
        ]
        print(f"| {mode} | {' | '.join(shown)} |")


def decide() -> float:
    """Choices a second, for stages of three types with twenty models."""
    engine = Engine(ClusterState(Timers()))
    engine.state.epoch = 1
    for at in range(WORKERS):
        devices = tuple(Device(each, "a100", 80 << 30) for each in range(at % 9))
        capacity = Capacity(32, 256 << 30, devices=devices, cost_per_hour=1.0 + at % 7)
        engine.turn([Hello(f"n{at}", "a", f"o{at}", capacity, [])], 1.0)
    stages = tuple(
        Stage(
            f"s{at}",
            Job("", (Group(Command(("true",)), Request()),), "", 1.0, user="ada"),
            task_type=("inference", "sft", "rag")[at % 3],
            spec=f'{{"model": {{"source": {{"identifier": "org/m{at % 20}"}}}}}}',
        )
        for at in range(READY)
    )
    flow = Workflow(workflow_id(1, 1 << 30), stages, 1.0, user="ada")
    began = time.perf_counter()
    turn, now, placed = engine.turn([SubmitWorkflow(flow)], 2.0), 2.0, 0
    while True:
        placed += sum(isinstance(event, e.TaskPlaced) for event in turn.events)
        if not turn.more:
            break
        now += 0.001
        turn = engine.turn([], now)
    assert placed == READY
    return placed / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description="Dispatch modes.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    rates = [decide() for _ in range(given.rounds)]
    found = median(rates)
    goal = f"{found / TARGET:.2f} of the goal of {TARGET}"
    print(f"{number(found)} choices/s ({WORKERS} nodes, {READY} ready stages), {goal}")
    for workflows in WORKFLOWS:
        compare(given.seeds, workflows)


if __name__ == "__main__":
    main()
