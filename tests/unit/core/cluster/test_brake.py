"""The brake: if most nodes fall silent at once, none is declared lost (R12)."""

from __future__ import annotations

from phalanx.coordinator.views_cluster import brake_text, node_view
from phalanx.coordinator.why import why_reply
from phalanx.core.cluster.decision import Accepted, Refused
from phalanx.core.cluster.events import BrakeReleased, BrakeSet, Event, NodeLost, TermOpened
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import DeclareLost, Drain, Leave, Tick
from phalanx.core.cluster.state import Timers
from phalanx.core.cluster.transitions import apply
from phalanx.core.model.orders import Status, Why
from tests.support.builders import Cluster, a_job

NAMES = [f"n{number}" for number in range(1, 11)]


def ten_nodes(rules: Timers | None = None) -> Cluster:
    cluster = Cluster(rules)
    for name in NAMES:
        cluster.add_node(name, cores=1)
    return cluster


def pass_time(cluster: Cluster, seconds: int, alive: list[str]) -> None:
    """Second by second; living nodes send a heartbeat every five, each at its own time."""
    for _ in range(seconds):
        cluster.now += 1.0
        for place, name in enumerate(NAMES):
            if name in alive and int(cluster.now) % 5 == place % 5:
                held = list(cluster.state.nodes[name].attempts)
                cluster.beat(name, *held)
        cluster.give(Tick())


def told(cluster: Cluster, kind: type[Event]) -> list[Event]:
    return [event for turn in cluster.turns for event in turn.events if isinstance(event, kind)]


def lost(cluster: Cluster) -> set[str]:
    return {name for name, node in cluster.state.nodes.items() if node.lost}


def test_if_more_than_the_share_is_silent_nobody_is_lost() -> None:
    cluster = ten_nodes()
    pass_time(cluster, 10, NAMES)
    pass_time(cluster, 300, NAMES[6:])
    assert lost(cluster) == set()
    assert cluster.state.brake is not None


def test_if_fewer_are_silent_they_are_lost_as_usual() -> None:
    cluster = ten_nodes()
    pass_time(cluster, 10, NAMES)
    pass_time(cluster, 40, NAMES[5:])
    assert lost(cluster) == set(NAMES[:5])
    assert told(cluster, BrakeSet) == []


def test_of_fewer_than_five_nodes_all_may_be_lost() -> None:
    cluster = Cluster()
    for name in NAMES[:4]:
        cluster.add_node(name)
    pass_time(cluster, 35, [])
    assert lost(cluster) == set(NAMES[:4])


def test_attempts_on_silent_nodes_keep_what_they_hold() -> None:
    cluster = ten_nodes()
    job = a_job("n1")
    cluster.submit(job)
    pass_time(cluster, 300, [])
    assert cluster.state.jobs[job.id].live[0].node == "n1"
    assert cluster.state.jobs[job.id].losses == {}


def test_nothing_new_goes_to_a_node_that_is_silent() -> None:
    cluster = ten_nodes()
    pass_time(cluster, 60, NAMES[7:])
    job = a_job("n1")
    cluster.submit(job)
    assert cluster.status(job) == Status.PENDING
    cluster.beat("n1")
    assert cluster.status(job) == Status.ASSIGNED


def test_it_is_set_once_with_its_numbers() -> None:
    cluster = ten_nodes()
    pass_time(cluster, 10, NAMES)
    pass_time(cluster, 100, NAMES[7:])
    (event,) = told(cluster, BrakeSet)
    assert isinstance(event, BrakeSet)
    assert (event.silent, event.nodes) == (7, 10)


def test_when_enough_are_back_it_is_released_and_the_rest_is_lost() -> None:
    cluster = ten_nodes()
    pass_time(cluster, 60, [])
    for name in NAMES[2:]:
        cluster.add_node(name, cores=1)
    pass_time(cluster, 10, NAMES[2:])
    assert cluster.state.brake is None
    assert len(told(cluster, BrakeReleased)) == 1
    assert lost(cluster) == {"n1", "n2"}


def test_when_all_are_back_nobody_was_ever_lost() -> None:
    cluster = ten_nodes()
    job = a_job("n1")
    cluster.submit(job)
    cluster.started("n1", (job.id, 0, 1))
    pass_time(cluster, 60, [])
    for name in NAMES:
        cluster.add_node(name, held=tuple(cluster.state.nodes[name].attempts), cores=1)
    pass_time(cluster, 30, NAMES)
    assert (cluster.state.brake, told(cluster, NodeLost)) == (None, [])
    assert cluster.state.jobs[job.id].live[0].key == (job.id, 0, 1)


def test_those_who_were_lost_a_moment_ago_are_counted_with_the_silent() -> None:
    """Four fall silent, and three more ten seconds later: that is seven at once."""
    cluster = ten_nodes()
    pass_time(cluster, 10, NAMES)
    pass_time(cluster, 12, NAMES[4:])
    pass_time(cluster, 40, NAMES[7:])
    assert lost(cluster) == set(NAMES[:4])
    assert cluster.state.brake is not None


def test_who_was_drained_is_not_counted() -> None:
    """An operator who drains six machines and switches them off is not a catastrophe."""
    cluster = ten_nodes()
    for name in NAMES[:6]:
        cluster.submit(a_job(name))
        cluster.give(Drain(name, "new floor"))
    pass_time(cluster, 40, NAMES[6:])
    assert told(cluster, BrakeSet) == []
    assert set(cluster.state.nodes) == set(NAMES[6:]), "drained and silent, they are removed"


def test_an_operator_may_say_that_a_node_is_really_gone() -> None:
    cluster = ten_nodes()
    job = a_job("n1")
    cluster.submit(job)
    pass_time(cluster, 60, NAMES[7:])
    (answer,) = cluster.give(DeclareLost("n1", "it burnt", "ann"))
    assert isinstance(answer, Accepted)
    assert lost(cluster) == {"n1"}
    assert cluster.state.brake is not None
    assert Why(cluster.state.jobs[job.id].why[0]) == Why.LOST
    assert "it burnt" in cluster.state.jobs[job.id].details[0][0]


def test_who_was_just_heard_of_cannot_be_declared_lost() -> None:
    cluster = ten_nodes()
    pass_time(cluster, 20, [])
    (answer,) = cluster.give(DeclareLost("n1", "it burnt"))
    assert isinstance(answer, Refused)
    assert answer.reason.code == "NodeAlive"
    assert lost(cluster) == set()


def test_declaring_lost_what_is_lost_or_unknown() -> None:
    cluster = ten_nodes()
    pass_time(cluster, 40, NAMES[1:])
    known, unknown = cluster.give(DeclareLost("n1", "again"), DeclareLost("n99", "who"))
    assert known == Accepted(0)
    assert isinstance(unknown, Refused)
    assert unknown.kind == "not_found"


def test_it_is_shown_for_the_cluster_for_its_nodes_and_to_whoever_asks_why() -> None:
    cluster = ten_nodes()
    job = a_job("n1")
    cluster.submit(job)
    pass_time(cluster, 60, NAMES[7:])
    state = cluster.state
    assert brake_text(state).startswith("7 of 10 nodes ")
    assert "silent" in node_view(state, state.nodes["n1"]).note
    assert node_view(state, state.nodes["n9"]).note == ""
    said = why_reply(state, state.jobs[job.id], 0, cluster.now)
    assert said.dominant.code == "LossesBraked"
    assert said.fix is not None
    assert said.fix.command == "phalanx node lose n1 --reason WHY"


def test_an_image_keeps_it_and_a_new_term_begins_without() -> None:
    cluster = ten_nodes()
    pass_time(cluster, 60, [])
    again = decode_state(encode_state(cluster.state), cluster.state.rules)
    assert again.brake == cluster.state.brake
    apply(again, TermOpened(at=cluster.now, epoch=2))
    assert again.brake is None
    cluster.engine.state = again
    pass_time(cluster, 20, [])
    assert lost(cluster) == set(), "a new term starts with whole leases"


def test_the_share_can_be_set() -> None:
    cluster = ten_nodes(Timers(brake_share=1.0))
    pass_time(cluster, 40, [])
    assert lost(cluster) == set(NAMES)


def test_a_job_is_never_lost_by_it() -> None:
    cluster = ten_nodes()
    job = a_job(array="1-10", max_retries=0)
    cluster.submit(job)
    pass_time(cluster, 100, [])
    for name in NAMES:
        cluster.add_node(name, life="b", cores=1)  # all of them were switched off and on
    pass_time(cluster, 5, NAMES)
    assert [cluster.status(job, position) for position in range(10)] == [Status.ASSIGNED] * 10


def test_runners_that_stopped_in_order_and_whose_leases_are_over_do_not_count_as_silent() -> None:
    cluster = ten_nodes()
    pass_time(cluster, 10, NAMES)
    for name in NAMES[:7]:
        cluster.give(Leave(name, "a", cluster.state.nodes[name].generation))
    pass_time(cluster, 20, NAMES[7:])
    pass_time(cluster, 40, NAMES[8:])  # one of the others dies, just after the leases of those are over
    assert lost(cluster) == set(NAMES[:8])
    assert told(cluster, BrakeSet) == []


def test_a_runner_that_stopped_in_order_counts_again_when_it_is_back() -> None:
    cluster = ten_nodes()
    for name in NAMES[:7]:
        cluster.give(Leave(name, "a", cluster.state.nodes[name].generation))
    pass_time(cluster, 35, NAMES[7:])
    assert lost(cluster) == set(NAMES[:7])
    for name in NAMES[:7]:
        cluster.add_node(name, life="b", cores=1)
    assert not any(node.leaving for node in cluster.state.nodes.values())
    pass_time(cluster, 60, NAMES[7:])
    assert lost(cluster) == set()
    assert len(told(cluster, BrakeSet)) == 1
