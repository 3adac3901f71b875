"""Workflows: a random DAG of ten thousand `/bin/true` against the machine's limit; what stages cost without processes.

Three parts: real processes on one node of two slots; pretended runners over TCP, which end every task at once, so that
the coordinator is all there is; and the engine alone, in this process, with one hundred to ten thousand waiting stages.
`bench.workflow_peers` compares with other workflow engines.
"""

from __future__ import annotations

import gc
import json
import os
import time
from dataclasses import dataclass
from statistics import median

from bench import ceiling
from bench.ceiling import Ceiling
from bench.cluster import Cluster
from bench.coordinator import SHORT_S, crowd
from bench.dag import Dag, depth, random_dag
from bench.figures import Chapter, Figure, Table, number
from bench.keepalive import Connection
from bench.machine import Span
from bench.session import Session

STAGES, ROUNDS = 10_000, 5
SLOTS = 2
SHARE, PRETENDED_PER_S, FLAT = 0.35, 5000, 1.25
WAITING = (100, 1000, 10_000)


@dataclass
class Round:
    """What one round saw."""

    bare: Ceiling
    per_s: float
    ms: dict[str, float]  # CPU per stage, by part


def measure(session: Session) -> Chapter:
    stages = session.size(STAGES, 500)
    dag = random_dag(stages)
    ours = session.cluster(SLOTS)
    run_dag(session, ours, random_dag(200))  # the first tasks of a cluster pay for what is loaded late
    rounds = [_round(session, ours, dag) for _ in range(session.size(ROUNDS, 2))]
    ours.stop()
    pretended = [_pretended(session, dag) for _ in range(session.size(3, 1))]
    title = f"Workflows: a random DAG of {stages:,} stages, {depth(dag)} deep, {len(rounds)} rounds"
    chapter = Chapter(title)
    chapter.figures = [
        Figure("stages/s, each a process", "/s", [each.per_s for each in rounds]),
        Figure("raw posix_spawn limit", "/s", [each.bare.per_s for each in rounds]),
        Figure("share of the raw limit", "", [each.per_s / each.bare.per_s for each in rounds], SHARE),
        Figure("control CPU per stage", "ms", [sum(each.ms.values()) - each.bare.cpu_ms for each in rounds]),
        Figure("of it coordinator", "ms", [each.ms["coordinator"] for each in rounds]),
        Figure("stages/s, pretended runners", "/s", [per_s for per_s, _ in pretended], PRETENDED_PER_S),
        Figure("of them coordinator CPU per stage", "ms", [cpu for _, cpu in pretended]),
        *_engine_figures(session),
    ]
    chapter.tables = [_cpu_table(rounds)]
    chapter.notes = [
        (
            f"Each stage builds on up to three random ones of the hundred before it. One node of {SLOTS} slots, one"
            " POST over REST to the answer of the wait, SQLite with an fsync per batch, logs captured."
        ),
        "Pretended runners: a hundred connections that answer every start with its end; the coordinator has one CPU.",
        "The engine alone has no store and no network: stages that are all ready wait for the 64 cores of one node.",
    ]
    return chapter


def _round(session: Session, ours: Cluster, dag: Dag) -> Round:
    session.settle()
    stages = len(dag)
    before = ceiling.measure(stages // 2)  # half before us and half after, since the machine's speed drifts
    span = run_dag(session, ours, dag)
    bare = ceiling.joined(before, ceiling.measure(stages // 2))
    ms = {name: used.own_s / stages * 1000 for name, used in span.used.items()}
    ms["tasks"] = sum(used.children_s for used in span.used.values()) / stages * 1000
    return Round(bare, stages / span.wall_s, ms)


def run_dag(session: Session, cluster: Cluster, dag: Dag) -> Span:
    body = as_workflow(dag)
    with cluster.connect() as rest, session.machine.span(cluster.parts() | {"client": [os.getpid()]}) as span:
        wait_workflow(rest, submit_workflow(rest, body))
    return span


def as_workflow(dag: Dag) -> bytes:
    """The DAG as a request: every stage runs /bin/true."""
    job = {"groups": [{"command": ["/bin/true"]}]}
    stages = [
        {"name": f"s{stage}", "job": job, "after": [f"s{other}" for other in after]}
        for stage, after in enumerate(dag)
    ]
    return json.dumps({"workflow": {"stages": stages}}).encode()


def submit_workflow(rest: Connection, body: bytes) -> str:
    return str(json.loads(rest.ask("POST", "/v1/workflows", body))["id"])


def wait_workflow(rest: Connection, id: str, within_s: float = 600.0) -> None:
    """Return when it has completed; anything else is an error."""
    deadline = time.monotonic() + within_s
    while True:
        view = json.loads(rest.ask("GET", f"/v1/workflows/{id}/wait?timeout_s=30"))
        if view["status"] == "Completed":
            return
        if view["status"] in ("Failed", "Cancelled") or time.monotonic() > deadline:
            raise RuntimeError(f"workflow {id} is {view['status']}: {view['counts']}")


def _pretended(session: Session, dag: Dag) -> tuple[float, float]:
    """Stages a second, and the coordinator's CPU milliseconds per stage, with runners that start no process."""
    session.settle()
    cluster = session.cluster(None)
    with cluster.connect() as rest, crowd(session, cluster, SHORT_S) as load:
        load.tell({})
        wait_workflow(rest, submit_workflow(rest, as_workflow(random_dag(200))))
        body = as_workflow(dag)
        with session.machine.span({"coordinator": [cluster.coordinator_pid]}) as span:
            wait_workflow(rest, submit_workflow(rest, body))
    cluster.stop()
    return len(dag) / span.wall_s, span.cpu_s / len(dag) * 1000


def _engine_figures(session: Session) -> list[Figure]:
    """The engine alone: a DAG, and stages that all wait, as few and as many."""
    stages, rounds = session.size(STAGES, 1000), session.size(3, 1)
    dag = random_dag(stages)
    alone = [1 / engine_s(dag) for _ in range(rounds)]
    costs: dict[int, list[float]] = {waiting: [] for waiting in WAITING}
    for _ in range(rounds):
        for waiting, found in costs.items():
            count = min(waiting, stages)
            found.append(median(engine_s([[]] * count) for _ in range(max(1, stages // count // 4))) * 1e6)
    figures = [Figure("stages/s, the engine alone", "/s", alone, PRETENDED_PER_S)]
    figures += [
        Figure(f"cost of a stage, {waiting:,} waiting", "µs", found) for waiting, found in costs.items()
    ]
    pairs = zip(costs[WAITING[-1]], costs[WAITING[0]], strict=True)
    ratios = [many / few for many, few in pairs]
    figures.append(Figure("10,000 waiting / 100 waiting", "×", ratios, FLAT, "less"))
    return figures


def engine_s(dag: Dag, cores: int = 64) -> float:
    """CPU seconds per stage to run a DAG on the engine: decisions, state, placement; every start ends at once."""
    # By their modules, since `bench.compare` may measure a tree that has no workflows.
    from phalanx.coordinator.turn import Engine
    from phalanx.core.cluster.decision import Send
    from phalanx.core.cluster.inputs import Hello, SubmitWorkflow, Tell
    from phalanx.core.cluster.state import ClusterState, Timers
    from phalanx.core.model.job import Command, Group, Job
    from phalanx.core.model.orders import Ended, Exit, Start, Status, Why
    from phalanx.core.model.resources import Capacity, Request
    from phalanx.core.model.workflow import Stage, Workflow, workflow_id

    job = Job("", (Group(Command(("/bin/true",)), Request(cores=1)),), "", 0.0, user="ada")
    stages = tuple(Stage(f"s{at}", job, tuple(after)) for at, after in enumerate(dag))
    flow = Workflow(workflow_id(1, 1 << 40), stages, 0.0, user="ada")
    engine = Engine(ClusterState(Timers()))
    engine.state.epoch = 1
    engine.turn([Hello("n1", "a", "o", Capacity(cores, 1 << 40), [])], 0.0)
    lease, now = engine.state.nodes["n1"].generation, 1.0
    turn = engine.turn([SubmitWorkflow(flow)], now)
    gc.disable()  # the coordinator sets aside what survives, so that the state is not looked through
    began = time.process_time()
    while True:
        starts = [each.order for each in turn.effects if type(each) is Send and type(each.order) is Start]
        if not starts and not turn.more:
            break
        now += 0.001
        exit = Exit(Why.NONE, 0, now, now)
        turn = engine.turn([Tell("n1", "a", 1, Ended(start.key, exit), lease) for start in starts], now)
    cpu_s = time.process_time() - began
    gc.enable()
    if engine.state.workflows[flow.id].overall_status != Status.COMPLETED:
        raise RuntimeError("the workflow did not complete")
    return cpu_s / len(dag)


def _cpu_table(rounds: list[Round]) -> Table:
    rows = [["bare spawn", "parent and child", number(median(each.bare.cpu_ms for each in rounds))]]
    rows += [["Phalanx", part, number(median(each.ms[part] for each in rounds))] for part in rounds[0].ms]
    return "CPU per stage", ["", "process", "ms"], rows
