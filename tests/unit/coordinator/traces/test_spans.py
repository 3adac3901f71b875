"""Spans of jobs and workflows, from turns alone: which there are, below which, and from when to when."""

from __future__ import annotations

from phalanx.coordinator.traces.spans import TASKS_MAX, SpanBuilder, SpanRecord
from phalanx.core.cluster.decision import Answer
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Cancel, Input, RetryWorkflow, SubmitWorkflow, Tick
from phalanx.core.model.orders import Ended, Exit, Why
from tests.support.builders import Cluster, a_job
from tests.support.workflow_cluster import a_workflow


class TracedCluster(Cluster):
    """A cluster of one node whose every turn becomes spans."""

    def __init__(self) -> None:
        super().__init__()
        self.builder = SpanBuilder()
        self.spans: list[SpanRecord] = []
        self.add_node("n1", cores=4)

    def give(self, *inputs: Input) -> list[Answer | None]:
        answers = super().give(*inputs)
        self.spans += self.builder.spans(self.turns[-1], self.state)
        return answers

    def run(self, id: str, number: int = 1, code: int = 0, took_s: float = 10.0, position: int = 0) -> None:
        """One attempt starts, takes its time and ends."""
        key = (id, position, number)
        self.started("n1", key)
        began_at, self.now = self.now, self.now + took_s
        exit = Exit(Why.EXITED if code else Why.NONE, code, began_at, self.now, message=f"code {code}")
        self.tell("n1", Ended(key, exit))

    def named(self, name: str) -> list[SpanRecord]:
        return [span for span in self.spans if span.name == name]

    def times(self, name: str) -> list[tuple[float, float]]:
        return [(span.start, span.end) for span in self.named(name)]


def test_a_job_waits_and_runs_and_its_root_spans_all():
    cluster = TracedCluster()
    job = a_job(name="train", max_retries=1)
    submitted = job.submitted_at
    cluster.now = submitted
    cluster.submit(job)
    cluster.run(job.id, code=3)
    failed_at = cluster.now
    cluster.now += 100
    cluster.give(Tick())
    cluster.run(job.id, 2)
    assert cluster.times("run") == [(submitted, failed_at), (cluster.now - 10, cluster.now)]
    assert cluster.times("queue wait")[0] == (submitted, submitted)
    assert cluster.times("queue wait")[1][0] == failed_at
    assert [span.error for span in cluster.named("run")] == ["code 3", None]
    (root,) = cluster.named("job train")
    assert (root.start, root.end, root.parent, root.error) == (submitted, cluster.now, None, None)
    assert {(span.trace, span.parent) for span in cluster.spans if span is not root} == {(job.id, root.key)}
    assert root.attributes["phalanx.status"] == "Completed"


def test_spans_of_a_coordinator_that_took_over_have_the_same_starts():
    cluster = TracedCluster()
    job, other = a_job(name="train", max_retries=1, cores=4), a_job(cores=4, priority=9, may_evict=False)
    cluster.now = job.submitted_at
    cluster.submit(job)
    cluster.submit(other)  # it gets the place when the first attempt has failed
    cluster.run(job.id, code=3)
    failed_at = cluster.now
    cluster.builder, cluster.spans = SpanBuilder(), []
    cluster.builder.resume(decode_state(encode_state(cluster.state), cluster.state.rules))
    cluster.run(other.id)
    cluster.run(job.id, 2)
    assert cluster.times("queue wait") == [(failed_at, failed_at + 10)]
    assert cluster.times("job train") == [(job.submitted_at, cluster.now)]


def test_stages_are_below_their_workflow_and_those_without_a_job_as_well():
    cluster = TracedCluster()
    flow = a_workflow(
        """
spec:
  stages:
    - {name: one, spec: {command: [/bin/false], max_attempts: 1}}
    - {name: two, spec: {command: [/bin/true]}}
"""
    )
    cluster.now = flow.submitted_at + 5
    cluster.give(SubmitWorkflow(flow))
    state = cluster.state.workflows[flow.id]
    cluster.run(state.job_id(0), code=1)
    (root,) = [span for span in cluster.spans if span.parent is None]
    assert (root.trace, root.start, root.end) == (flow.id, flow.submitted_at, cluster.now)
    assert root.attributes["phalanx.status"] == "Failed"
    (one,), (two,) = cluster.named("stage one"), cluster.named("stage two")
    assert (one.parent, two.parent) == (root.key, root.key)
    assert (one.error, one.attributes["phalanx.reason"]) == ("code 1", "exited")
    assert two.attributes["phalanx.status"] == "Failed"
    assert "one" in str(two.attributes["phalanx.reason"])
    assert {span.parent for span in cluster.spans if span.name in ("run", "queue wait")} == {one.key}
    cluster.give(RetryWorkflow(flow.id))
    for stage in (0, 1):
        cluster.run(state.job_id(stage))
    roots = [span for span in cluster.spans if span.parent is None]
    assert len({span.key for span in roots}) == 2
    assert roots[1].attributes["phalanx.status"] == "Completed"
    assert {span.parent for span in cluster.named("stage two")} == {span.key for span in roots}
    assert len({(span.trace, span.key) for span in cluster.spans}) == len(cluster.spans)


def test_a_cancelled_job_is_no_error():
    cluster = TracedCluster()
    job = a_job(name="train", cores=4)
    cluster.submit(a_job(cores=4))
    cluster.submit(job)
    cluster.give(Cancel(job.id))
    (root,) = cluster.named("job train")
    assert (root.error, root.attributes["phalanx.status"]) == (None, "Cancelled")


def test_a_large_array_has_the_spans_of_its_first_tasks():
    cluster = TracedCluster()
    job = a_job(name="many", array=f"0-{TASKS_MAX + 9}")
    cluster.submit(job)
    last = TASKS_MAX + 9
    for position in range(last + 1):
        cluster.run(job.id, took_s=0.0, position=position)
    assert len(cluster.named("run")) == len(cluster.named("queue wait")) == TASKS_MAX
    assert len(cluster.named("job many")) == 1
