"""The lines of a story are read as the coordinator writes them: a sentence that changes must not empty a check."""

from __future__ import annotations

from phalanx import StoryLine
from phalanx.core.cluster.inputs import DeclareLost
from phalanx.core.explain.story import sentence
from phalanx.core.model.orders import Exit, Ready, Started, Why
from tests.chaos.answers import Job, Task, note
from tests.support.builders import a_gang, a_group
from tests.support.core_cluster import CoreCluster


def test_formations_releases_ends_and_losses_are_read_from_real_stories():
    cluster = CoreCluster(n1={"cores": 4}, n2={"cores": 4})
    gang = a_gang(a_group(2))
    cluster.submit(gang)
    cluster.gang_placement(gang, {0: "n1", 1: "n2"})
    for report in (Ready, Started):
        for position in (0, 1):
            cluster.report(gang, position, report)
    cluster.report(gang, 0, Exit(Why.NONE, 0, 100.0, 101.0))
    cluster.now += 60.0
    cluster.give(DeclareLost("n2", "it burnt"))
    tasks = {each: Task(each, "Running", "", None, 1) for each in (0, 1)}
    job = Job(gang.id, "g", "Running", tasks)
    for revision, event in enumerate(cluster.events, start=1):
        key = getattr(event, "key", None)
        task = f"{gang.id}.{key[1]}" if key else None
        note(job, StoryLine(revision, event.at, type(event).__name__, sentence(event), task, event.on_node))
    assert job.stood == {1: {"n1", "n2"}}
    assert job.released_at == {1: 100.0}
    assert tasks[0].ended == [1]
    assert tasks[1].lost == tasks[1].ended == [1]
