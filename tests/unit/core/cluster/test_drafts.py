"""A gang whose members have not all come waits, delays no other job, and is amended whole under its id (M11)."""

from __future__ import annotations

import pytest
from msgspec import structs

from phalanx.core.cluster.decision import Accepted, Refused
from phalanx.core.cluster.events import JobAmended, decode, encode
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Cancel, ProposeGang, Submit
from phalanx.core.cluster.invariants import check
from phalanx.core.cluster.state import ClusterState, Timers
from phalanx.core.cluster.transitions import apply
from phalanx.core.explain.story import sentence
from phalanx.core.model.job import IncompleteGang, Job
from phalanx.core.model.plan import GangPlacement
from phalanx.core.model.reason import Reason
from tests.support.builders import a_gang, a_group, a_job
from tests.support.core_cluster import CoreCluster

LACKS = "default/hello-job needs 2 members and has 1"


def a_draft(members: int = 1) -> Job:
    pods = tuple(f"default/pod-{number}" for number in range(members))
    return a_gang(
        a_group(members, objects=pods),
        object="default/hello-job",
        draft=IncompleteGang(LACKS, "text"),
        user="ada",
    )


def with_members(draft: Job, members: int, *, is_whole: bool = True, user: str = "ada") -> Job:
    more = a_draft(members)
    return structs.replace(
        more, id=draft.id, user=user, draft=None if is_whole else IncompleteGang(LACKS, "more")
    )


def a_core_cluster() -> CoreCluster:
    return CoreCluster(n1={"cores": 4}, n2={"cores": 4})


def refused(answer: object) -> Reason:
    assert isinstance(answer, Refused)
    assert answer.kind == "conflict"
    return answer.reason


def test_a_draft_waits_nowhere_and_cannot_be_placed():
    cluster, draft = a_core_cluster(), a_draft()
    cluster.submit(draft)
    assert not cluster.state.waiting.classes
    placements = cluster.placements(draft, {0: "n1"})
    assert isinstance(cluster.give(ProposeGang(GangPlacement(draft.id, placements))), Refused)


def test_it_is_amended_under_its_id_and_starts_in_its_place_in_the_queue():
    cluster, draft, later = a_core_cluster(), a_draft(), a_job()
    arrival = cluster.submit(draft).arrival
    cluster.submit(later)
    assert cluster.give(Submit(with_members(draft, 2), amends=0)) == Accepted(2)
    job = cluster.state.jobs[draft.id]
    assert (job.arrival, job.job.submitted_at, job.job.batch) == (arrival, draft.submitted_at, draft.batch)
    assert job.job.draft is None
    assert cluster.state.counts[0] == 3
    assert [each.job.id for each in (state.units[0] for state in cluster.state.jobs.values())].count(
        draft.id
    ) == 1
    assert cluster.state.called("default/pod-1", job.job.user) == (job, 1)
    assert isinstance(cluster.gang_placement(job.job, {0: "n1", 1: "n2"}), Accepted)


def test_two_who_add_members_at_once_do_not_lose_any():
    cluster, draft = a_core_cluster(), a_draft()
    cluster.submit(draft)
    assert isinstance(cluster.give(Submit(with_members(draft, 2, is_whole=False), amends=0)), Accepted)
    assert refused(cluster.give(Submit(with_members(draft, 3), amends=0))).code == "Amended"
    kept = cluster.state.jobs[draft.id].job
    assert kept.draft == IncompleteGang(LACKS, "more", 1)
    assert isinstance(cluster.give(Submit(with_members(draft, 3), amends=1)), Accepted)


@pytest.mark.parametrize("spoil", ["whole", "over", "unknown", "other"])
def test_what_does_not_wait_for_members_is_not_amended(spoil):
    cluster, draft = a_core_cluster(), a_draft()
    if spoil != "unknown":
        cluster.submit(structs.replace(draft, draft=None) if spoil == "whole" else draft)
    if spoil == "over":
        cluster.give(Cancel(draft.id))
    before = encode_state(cluster.state)
    given = with_members(draft, 2, user="eve" if spoil == "other" else "ada")
    assert refused(cluster.give(Submit(given, amends=0))).code == "NotAmendable"
    assert encode_state(cluster.state) == before


def test_a_log_and_an_image_give_the_same_state():
    cluster, draft = a_core_cluster(), a_draft()
    cluster.submit(draft)
    cluster.give(Submit(with_members(draft, 2, is_whole=False), amends=0))
    image = decode_state(encode_state(cluster.state), Timers())
    assert not image.waiting.classes
    for state in (image, cluster.state):
        apply(state, JobAmended(at=9.0, job=with_members(draft, 2)))
        assert check(state) == []
        assert len(state.waiting.classes) == 1
    replayed = ClusterState()
    for event in decode(encode(cluster.events)):
        apply(replayed, event)
    assert replayed.jobs[draft.id].job.draft == IncompleteGang(LACKS, "more", 1)
    assert LACKS in sentence(next(event for event in cluster.events if isinstance(event, JobAmended)))


def test_it_is_cancelled_like_any_job():
    cluster, draft = a_core_cluster(), a_draft(2)
    cluster.submit(draft)
    assert isinstance(cluster.give(Cancel(draft.id)), Accepted)
    assert cluster.state.jobs[draft.id].is_over


def test_the_members_that_a_gang_has_already_do_not_count_twice():
    cluster = CoreCluster(n1={"cores": 4})
    cluster.state.rules = Timers(pending_max=1500)  # of which one user may have 1000
    draft = a_draft(600)
    cluster.submit(draft)
    assert cluster.give(Submit(with_members(draft, 900, is_whole=False), amends=0)) == Accepted(900)
    too_many = cluster.give(Submit(with_members(draft, 1001), amends=1))
    assert isinstance(too_many, Refused) and too_many.reason.code == "QueueFull"
    assert cluster.give(Submit(with_members(draft, 1000), amends=1)) == Accepted(1000)
    assert cluster.state.tasks_of == {"ada": 1000}
