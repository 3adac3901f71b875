"""Whether a gang could ever start here: tested on empty nodes, including those that are away."""

from __future__ import annotations

import pytest

from phalanx.coordinator.refusals import submit_refusal
from phalanx.core.cluster.decision import Refused
from phalanx.core.cluster.jobs import JobState
from phalanx.core.explain import shortage
from phalanx.core.explain.shortage import gang_never, place_gang, why_never
from phalanx.core.model.job import Gather, Job
from phalanx.core.model.plan import GangPlacement
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.resources import Grant
from phalanx.core.placement.gang import packing
from tests.support.builders import Cluster, a_job
from tests.support.topologies import a_draft, a_waiting_gang, some

IN_ONE_RACK = (Gather("rack", must=True),)


def test_what_is_only_full_or_away_now_is_not_never():
    draft = a_draft("s1/b1/r1", "s1/b1/r1", cores=4)
    draft.nodes.take(0, Grant(4, 0))
    draft.nodes.set_open("n2", False)
    owner = a_waiting_gang(some(8), gather=IN_ONE_RACK)
    assert isinstance(place_gang(draft, owner), Reason)
    assert gang_never(draft.nodes, owner) is None


def test_what_no_rack_could_hold_is_never():
    nodes = a_draft("s1/b1/r1", "s1/b1/r2", cores=4).nodes
    no = gang_never(nodes, a_waiting_gang(some(5), gather=IN_ONE_RACK))
    assert no is not None
    assert (no.code, no.tier, no.numbers["domains"]) == (
        "MustGatherImpossible",
        Tier.NEVER,
        {"s1/b1/r1": 4, "s1/b1/r2": 4},
    )


def test_groups_that_do_not_fit_beside_each_other_even_on_empty_nodes_are_never():
    nodes = a_draft("s1/b1/r1", "s1/b1/r1", cores=5).nodes
    owner = a_waiting_gang(some(2, cores=3), some(1, cores=4))
    no = gang_never(nodes, owner)
    assert no is not None
    assert (no.code, no.tier) == ("ExceedsClusterTotal", Tier.NEVER)
    ruled = gang_never(nodes, a_waiting_gang(some(2, cores=3), some(1, cores=4), gather=IN_ONE_RACK))
    assert ruled is not None and ruled.code == "MustGatherImpossible"
    assert gang_never(nodes, a_waiting_gang(some(2, cores=3), some(2, cores=2))) is None


def test_trying_changes_nothing_and_is_left_out_where_it_would_take_long(monkeypatch: pytest.MonkeyPatch):
    draft = a_draft("s1/b1/r1", "s1/b1/r1", cores=5)
    owner = a_waiting_gang(some(2, cores=3), some(1, cores=4))
    monkeypatch.setattr(shortage, "NODES_TRIED_MAX", 1)
    assert gang_never(draft.nodes, owner) is None
    assert isinstance(place_gang(draft, a_waiting_gang(some(2, cores=5))), GangPlacement)


def test_a_search_that_gave_up_is_no_proof(monkeypatch: pytest.MonkeyPatch):
    nodes = a_draft("s1/b1/r1", "s1/b1/r1", cores=7).nodes
    monkeypatch.setattr(packing, "DEPTH_MAX", 0)
    assert gang_never(nodes, a_waiting_gang(some(4, cores=2), some(2, cores=3))) is None


def test_a_gang_that_wants_nothing_is_never_refused():
    assert gang_never(a_draft("s1/b1/r1").nodes, a_waiting_gang()) is None


def test_what_never_says_is_what_placing_says():
    draft = a_draft("s1/b1/r1", cores=4, gpus="h100")
    for owner in (
        a_waiting_gang(some(5)),
        a_waiting_gang(some(1, gpus=2)),
        a_waiting_gang(some(1), gather=(Gather("Rack", must=True),)),
    ):
        assert gang_never(draft.nodes, owner) == place_gang(draft, owner)


def test_reasons_count_the_members_of_all_groups():
    nodes = a_draft("s1/b1/r1", "s1/b1/r2", cores=4).nodes
    master_and_workers = (some(1, cores=2), some(5, cores=1))
    never = gang_never(nodes, a_waiting_gang(*master_and_workers, gather=IN_ONE_RACK))
    assert never is not None
    assert (never.code, never.numbers["needed"], never.numbers["most"]) == ("MustGatherImpossible", 6, 5)
    assert never.numbers["layer"] == "rack"
    total = gang_never(nodes, a_waiting_gang(some(1, cores=2), some(9, cores=1)))
    assert total is not None and (total.code, total.numbers["wanted"]) == ("ExceedsClusterTotal", 10)


def test_room_that_is_taken_now_is_counted_for_all_groups():
    draft = a_draft("s1/b1/r1", "s1/b1/r2", cores=4)
    draft.nodes.take(0, Grant(3, 0))
    draft.nodes.take(1, Grant(3, 0))
    no = place_gang(draft, a_waiting_gang(some(1, cores=2), some(3, cores=1)))
    assert isinstance(no, Reason)
    assert (no.code, no.numbers["needed"], no.numbers["slots"]) == ("GangIncomplete", 4, 2)


def refused_for_labels(cluster: Cluster, job: Job) -> tuple[str, str]:
    no = why_never(cluster.state, JobState(job, 0, [0] * 6))
    refused = cluster.submit(job)
    assert no is not None and isinstance(refused, Refused)
    error = submit_refusal(cluster.state, [(None, job)], [refused], [])
    assert (error.status, error.reason, error.detail) == (422, no.code, no.text)
    return no.code, no.text


def test_labels_that_no_node_has_are_the_reason_and_not_its_size():
    cluster = Cluster()
    cluster.add_node("n1", cores=8)
    cluster.add_node("n2", cores=4, labels={"disk": "hdd"})
    code, text = refused_for_labels(cluster, a_job(labels=(("disk", "ssd"),)))
    assert code == "NoMatchingLabels"
    assert text == "No node can hold this, even when empty; closest: n1 does not have disk=ssd"
    code, text = refused_for_labels(cluster, a_job(cores=100, labels=(("disk", "hdd"),)))
    assert code == "ExceedsLargestNode", "one node has the label, and is too small"
    assert "n2" in text
