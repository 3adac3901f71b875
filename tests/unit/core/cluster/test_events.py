"""Every event says whose stories it belongs to, and what it does to the state."""

from __future__ import annotations

from typing import get_args

import pytest

from phalanx.core.cluster import events as e
from phalanx.core.cluster.event_kinds import (
    AttemptEvent,
    ClusterEvent,
    JobEvent,
    NodeEvent,
    Recorded,
    WorkflowEvent,
)
from phalanx.core.cluster.inputs import Input
from phalanx.core.cluster.nodes import Unfit
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.transitions import CHANGES, CHOICES, apply
from phalanx.core.cluster.workflow_events import WorkflowSubmitted

OF_NODES_ALONE = {e.NodeCleared, e.NodeQuarantined}  # the node's story tells of them, the task's need not
NAMES_A_JOB = {"job", "jobs", "key", "keys", "workflow", "content"}


def test_every_event_has_its_change():
    assert CHANGES.keys() == set(get_args(e.Event))


def test_every_input_has_its_choice():
    assert CHOICES.keys() == set(Input.__subclasses__())


@pytest.mark.parametrize("kind", get_args(e.Event), ids=lambda kind: kind.__name__)
def test_an_event_that_names_a_job_belongs_to_its_story(kind: type[Recorded]):
    kinds = (
        ClusterEvent | NodeEvent | JobEvent | AttemptEvent | e._Submitted | WorkflowEvent | WorkflowSubmitted
    )
    assert issubclass(kind, kinds)
    names = bool(NAMES_A_JOB & set(kind.__struct_fields__))
    about_nothing = kind.jobs is Recorded.jobs and issubclass(kind, ClusterEvent | NodeEvent)
    assert names != about_nothing or kind in OF_NODES_ALONE


def test_the_jobs_of_events():
    key = ("j1", 0, 1)
    promised = e.RoomPromised(
        at=1.0,
        job="j1",
        members=(),
        victims=(("j2", 0, 1), ("j2", 1, 1)),
        displaced=("j3",),
        trigger=0,
        until=2.0,
    )
    assert (promised.own_job, promised.jobs) == ("j1", ("j1", "j2", "j3"))
    evicted = e.TasksEvicted(at=1.0, keys=(key, ("j2", 0, 1), ("j1", 1, 1)))
    assert (evicted.own_job, evicted.jobs) == (None, ("j1", "j2"))
    assert e.LogRepaired(at=1.0, after=3, choice="hold", jobs=("j1",)).jobs == ("j1",)
    assert (e.TaskPaused(at=1.0, key=key).jobs, e.TaskPaused(at=1.0, key=key).on_node) == (("j1",), None)
    heard = e.NodeHeard(at=1.0, node="n1")
    assert (heard.own_job, heard.jobs, heard.on_node) == (None, (), "n1")


def test_an_event_of_no_kind_says_so_when_it_is_first_asked():
    class Forgotten(Recorded, frozen=True):
        pass

    with pytest.raises(NotImplementedError, match="Forgotten"):
        _ = Forgotten(at=1.0).jobs


def test_an_event_that_does_not_fit_is_counted_and_passed_over():
    state = ClusterState()
    for event in (
        e.JobForgotten(at=1.0, job="j1"),
        e.NodeLost(at=1.0, node="n1"),
        e.CredentialUsed(at=1.0, id="x"),
    ):
        assert apply(state, event) == []
    assert (state.skipped, state.revision) == (3, 3)


def test_a_defect_of_ours_is_no_damaged_record(monkeypatch: pytest.MonkeyPatch):
    def defect(state: ClusterState, event: e.NodeHeard) -> None:
        del state.nodes[event.node]

    state = ClusterState()
    monkeypatch.setitem(CHANGES, e.NodeHeard, defect)
    with pytest.raises(KeyError):
        apply(state, e.NodeHeard(at=1.0, node="n1"))
    assert not issubclass(Unfit, LookupError)
