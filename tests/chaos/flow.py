"""One large workflow beside the users of the rig: submitted once, and compared with what has to come of it.

Its stages form a trunk, which never fails, and branches, of each of which one stage does. Each stage adds up the
results of those that it builds on, so every result is known beforehand, and a result that was lost, or taken from
another attempt, shows. No stage may be retried: a wait or a lost node that is charged to it makes it fail.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import phalanx
from phalanx.errors import NotFound, PhalanxError, TooMany, Unavailable
from tests.chaos.answers import Task, ask_job
from tests.chaos.chaos_cluster import ChaosCluster
from tests.chaos.workload import FINAL

NAME = "flow"
FAILS_WITH = 7
MODULUS = 1_000_003
_BRANCH = 10  # stages of one branch, within which a failure spreads
_BACK = 20  # how far back in the trunk a stage builds
_TIME_SHARE = 0.6  # of the storm, that the longest chain of stages takes
_STAGE_S_MAX = 4.0


@dataclass(frozen=True)
class PlannedStage:
    """A stage, what it builds on, and with which code it ends."""

    name: str
    after: tuple[str, ...]
    code: int = 0


@dataclass
class FoundStage:
    """What Phalanx reports about a stage; of one that has a job, its only task."""

    status: str
    parent: str | None
    number: int | None  # its result
    task: Task | None


@dataclass
class FoundFlow:
    """The plan, and what came of it."""

    planned: list[PlannedStage]
    stages: dict[str, FoundStage] = field(default_factory=dict)
    submitted: int = 0  # how many workflows of that name there are
    ran: dict[str, int] = field(default_factory=dict)  # by stage: processes that reached their end
    refused: str = ""


def plan(seed: int, count: int) -> list[PlannedStage]:
    """So many stages; the same for the same seed."""
    chance, planned = Random(seed), []
    trunk: list[str] = []
    branch: list[str] = []
    fails_at = 0
    for number in range(count):
        name = f"s{number}"
        if number % 2 == 0:
            after = chance.sample(trunk[-_BACK:], min(len(trunk), chance.randint(1, 3)))
            planned.append(PlannedStage(name, tuple(after)))
            trunk.append(name)
            continue
        if len(branch) in (0, _BRANCH):
            branch, fails_at = [], chance.randrange(_BRANCH // 2)
        others = chance.sample(branch[:-1], min(len(branch[:-1]), chance.randint(0, 1)))
        after = [chance.choice(trunk[-_BACK:]), *branch[-1:], *others]  # so that a failure goes a long way
        code = FAILS_WITH if len(branch) == fails_at else 0
        planned.append(PlannedStage(name, tuple(after), code))
        branch.append(name)
    return planned


def expected(planned: list[PlannedStage]) -> dict[str, tuple[str, set[str], int | None]]:
    """What has to come of each stage: its status, the stages of which one is named as its parent, and its result."""
    found: dict[str, tuple[str, set[str], int | None]] = {}
    for stage in planned:  # those that it builds on stand before it
        failed = {name for name in stage.after if found[name][0] == "Failed"}
        total = None if failed else (1 + sum(found[name][2] or 0 for name in stage.after)) % MODULUS
        status = "Failed" if failed or stage.code else "Completed"
        # A stage that fails by itself has written its result before.
        found[stage.name] = (status, failed, total)
    return found


def wrong_stages(flow: FoundFlow | None) -> list[str]:
    """How a workflow differs from what had to come of it."""
    if flow is None:
        return []
    if flow.refused:
        return [f"the workflow was refused: {flow.refused}"]
    found = [] if flow.submitted == 1 else [f"one request made {flow.submitted} workflows"]
    for name, (status, parents, number) in expected(flow.planned).items():
        stage = flow.stages.get(name)
        if stage is None:
            found.append(f"stage {name} is not there")
        elif (wrong := _wrong(stage, status, parents, number, flow.ran.get(name, 0))) is not None:
            found.append(f"stage {name}: {wrong}")
    return found


def _wrong(stage: FoundStage, status: str, parents: set[str], number: int | None, ran: int) -> str | None:
    """What is wrong with one stage: its end, its parent, its result, or how often it was committed."""
    if stage.status != status:
        reason = "" if stage.task is None else f" ({stage.task.reason}, attempt {stage.task.attempt})"
        return f"it is {stage.status}{reason}, and has to be {status}"
    if parents:
        if ran or stage.task is not None:
            return f"it ran, though {sorted(parents)} failed"
        return (
            None if stage.parent in parents else f"its parent is {stage.parent}, not one of {sorted(parents)}"
        )
    if stage.parent is not None:
        return f"it names a parent, {stage.parent}, and failed by itself"
    if stage.number != number:
        return f"its result is {stage.number}, and has to be {number}"
    if stage.task is None or not ran:
        return "no process of it reached its end"
    commits = len(stage.task.completed)
    if commits != (status == "Completed"):
        return f"{commits} attempts of it completed"
    if len(stage.task.ended) != len(set(stage.task.ended)):
        return f"an attempt ended twice: {stage.task.ended}"
    return None


class Flow:
    """A workflow, submitted until that is answered."""

    def __init__(self, cluster: ChaosCluster, folder: Path, seed: int, count: int, seconds: float) -> None:
        self._cluster = cluster
        self._ledger = folder / "flow.txt"
        self._planned = plan(seed, count)
        self._stage_s = min(_STAGE_S_MAX, _TIME_SHARE * seconds / max(1, _depth(self._planned)))
        self._gone = threading.Event()
        self._thread = threading.Thread(target=self._submit, daemon=True)
        self._id = ""
        self._refused = ""

    def begin(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._gone.set()
        self._thread.join(30)

    def is_settled(self, client: phalanx.Client) -> bool:
        """Whether it has ended, or was refused."""
        with suppress(PhalanxError):
            return bool(self._refused) or (bool(self._id) and client.workflow_view(self._id).status in FINAL)
        return False

    def gather(self, client: phalanx.Client) -> FoundFlow:
        found = FoundFlow(self._planned, refused=self._refused)
        if self._refused or not self._id:
            found.refused = self._refused or "no answer came"
            return found
        view = client.workflow_view(self._id)
        found.submitted = sum(each.name == NAME for each in client.workflows(limit=100).items)
        names = {stage.job_id: stage.name for stage in view.stages}
        for stage in view.stages:
            task: Task | None = None
            with suppress(NotFound):  # it never had a job
                task = ask_job(client, stage.job_id).tasks[0]
            number = stage.result["n"] if isinstance(stage.result, dict) else None
            found.stages[stage.name] = FoundStage(stage.status, stage.parent, number, task)
        lines = self._ledger.read_text().splitlines() if self._ledger.exists() else []
        for line in lines:
            name = names.get(line.split()[0], "of nobody")
            found.ran[name] = found.ran.get(name, 0) + 1
        return found

    def _submit(self) -> None:
        request = phalanx.WorkflowRequest(self._spec(), request_id=NAME)
        with self._cluster.client() as client:
            while not self._gone.wait(0.2):
                try:
                    self._id = client.submit_workflow(request).id
                except (Unavailable, TooMany):
                    continue
                except PhalanxError as error:
                    self._refused = f"{error.reason}: {error.detail}"
                return

    def _spec(self) -> phalanx.WorkflowSpec:
        """Each stage adds what it is given in arguments, and writes its result last."""
        builder = phalanx.WorkflowBuilder(NAME)
        for stage in self._planned:
            text = (
                f"n=1; for each; do n=$(( (n + each) % {MODULUS} )); done; sleep {self._stage_s:.2f};"
                f' echo "{{\\"n\\": $n}}" > "$PHALANX_RESULT";'
                f' echo "$PHALANX_JOB_ID $PHALANX_ATTEMPT" >> {self._ledger}; exit {stage.code}'
            )
            given = [f"${{{name}.result.n}}" for name in stage.after]
            builder.stage(stage.name, ["/bin/sh", "-c", text, "stage", *given], max_retries=0)
        return builder.spec()


def _depth(planned: list[PlannedStage]) -> int:
    """The number of stages in the longest chain."""
    depths: dict[str, int] = {}
    for stage in planned:
        depths[stage.name] = 1 + max((depths[name] for name in stage.after), default=0)
    return max(depths.values(), default=1)
