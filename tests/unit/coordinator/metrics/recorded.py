"""A cluster whose every turn is observed by a recorder, as a coordinator does with durable turns."""

from __future__ import annotations

from phalanx.coordinator.metrics.recorder import Recorder
from phalanx.core.cluster.decision import Answer
from phalanx.core.cluster.inputs import Input, Tick
from phalanx.core.cluster.state import Timers
from phalanx.core.model.job import Job
from phalanx.core.model.orders import AttemptKey, Ended, Exit, Status, Why
from tests.support.builders import Cluster

ENDS = (Status.COMPLETED, Status.FAILED, Status.CANCELLED)


class RecordedCluster(Cluster):
    def __init__(self, rules: Timers | None = None, recorder: Recorder | None = None) -> None:
        super().__init__(rules)
        self.recorder = recorder or Recorder()

    def give(self, *inputs: Input) -> list[Answer | None]:
        answers = super().give(*inputs)
        self.recorder.observe(self.turns[-1], self.state)
        return answers

    def run_all(self, job: Job, code: int = 0, took_s: float = 0.0) -> None:
        """Start and end whatever of a job has a place, until nothing has."""
        while keys := [attempt.key for attempt in self.state.jobs[job.id].live.values()]:
            for key in keys:
                self.finish(key, code, took_s)

    def finish(self, key: AttemptKey, code: int = 0, took_s: float = 0.0) -> None:
        """One attempt starts, takes its time and ends."""
        attempt = self.state.jobs[key[0]].live[key[1]]
        self.started(attempt.node, key)
        began_at, self.now = self.now, self.now + took_s
        exit = Exit(Why.EXITED if code else Why.NONE, code, began_at, self.now)
        self.tell(attempt.node, Ended(key, exit))

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.give(Tick())

    def stop_all(self) -> None:
        """Every runner that was told to stop an attempt has stopped it."""
        for job in list(self.state.jobs.values()):
            for attempt in list(job.live.values()):
                if attempt.ending is not None:
                    self.ended(attempt.node, attempt.key, why=attempt.ending)

    def counted_ends(self) -> list[int]:
        return [self.recorder.ended[status] for status in ENDS]

    def true_ends(self) -> list[int]:
        """As the state has it, which is right while no job was forgotten."""
        return [self.state.counts[status] for status in ENDS]


def a_recorded_cluster(**nodes: dict[str, int]) -> RecordedCluster:
    cluster = RecordedCluster()
    for name, has in nodes.items():
        cluster.add_node(name, **has)  # type: ignore[arg-type]  # what a node has is all numbers
    return cluster
