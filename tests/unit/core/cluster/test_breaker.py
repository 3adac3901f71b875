"""Nodes that are excluded after failures in a row (C41)."""

from __future__ import annotations

import pytest
from msgspec import msgpack

from phalanx.coordinator.views_cluster import node_view
from phalanx.coordinator.why import why_reply
from phalanx.core.cluster.events import Event
from phalanx.core.cluster.exclusion_events import NodeExcluded
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.inputs import Cancel, Disconnect, Drain, Tick, Undrain
from phalanx.core.cluster.state import Timers
from phalanx.core.model.job import Job
from phalanx.core.model.orders import UNCHARGED, Disposition, Ended, Exit, Status, Why
from phalanx.core.runner.attempts import exit_unstarted
from tests.support.builders import Cluster, a_cluster, a_job


def fail(cluster: Cluster, node: str, times: int = 1, why: Why | None = None) -> None:
    """Tasks that are meant for this node fail there, one after another, of two users in turn."""
    for number in range(times):
        job = on(node, "ann" if number % 2 else "bob")
        cluster.submit(job)
        cluster.ended(node, (job.id, 0, 1), code=1, why=why)


def succeed(cluster: Cluster, node: str) -> None:
    job = on(node)
    cluster.submit(job)
    cluster.ended(node, (job.id, 0, 1))


def pass_time(cluster: Cluster, seconds: float) -> None:
    for _ in range(int(seconds)):
        cluster.now += 1.0
        for node in cluster.state.nodes:
            cluster.beat(node)
        cluster.give(Tick())


def on(node: str, user: str = "bob") -> Job:
    return a_job(node, max_retries=0, cores=1, user=user)


def takes(cluster: Cluster, node: str) -> bool:
    """Whether a task that is meant for this node would be placed there now."""
    job = on(node)
    cluster.submit(job)
    placed = cluster.status(job) == Status.ASSIGNED
    cluster.give(Cancel(job.id))
    if placed:
        cluster.ended(node, (job.id, 0, 1), code=1)
    return placed


def test_five_failures_in_a_row_send_a_node_to_rest_and_four_do_not() -> None:
    cluster = a_cluster(n1={}, n2={})
    fail(cluster, "n1", 4)
    assert takes(cluster, "n1")
    fail(cluster, "n1")
    assert not takes(cluster, "n1")
    assert takes(cluster, "n2")


def test_it_takes_work_again_after_its_exclusion() -> None:
    cluster = a_cluster(n1={}, n2={})
    fail(cluster, "n1", 5)
    pass_time(cluster, 59.0)
    assert not takes(cluster, "n1")
    pass_time(cluster, 1.0)
    assert takes(cluster, "n1")


def test_the_first_failure_after_a_rest_sends_it_to_rest_anew() -> None:
    cluster = a_cluster(n1={}, n2={})
    fail(cluster, "n1", 5)
    pass_time(cluster, 60.0)
    fail(cluster, "n1")
    assert cluster.state.nodes["n1"].excluded_until == cluster.now + 60.0


def test_a_success_clears_the_count() -> None:
    cluster = a_cluster(n1={}, n2={})
    fail(cluster, "n1", 4)
    succeed(cluster, "n1")
    fail(cluster, "n1", 4)
    assert takes(cluster, "n1")


def test_a_success_during_the_rest_ends_it() -> None:
    cluster = a_cluster(n1={}, n2={})
    slow = on("n1")
    cluster.submit(slow)
    fail(cluster, "n1", 5)
    cluster.ended("n1", (slow.id, 0, 1))
    assert takes(cluster, "n1")


def test_a_new_life_of_the_runner_begins_with_a_clean_slate() -> None:
    cluster = a_cluster(n1={}, n2={})
    fail(cluster, "n1", 5)
    cluster.add_node("n1", life="b")
    assert (cluster.state.nodes["n1"].failures, cluster.state.nodes["n1"].takes_work) == (0, True)


def test_a_broken_connection_does_not_wash_it_clean() -> None:
    cluster = a_cluster(n1={}, n2={})
    fail(cluster, "n1", 5)
    cluster.give(Disconnect("n1", "a"))
    cluster.add_node("n1")
    assert not cluster.state.nodes["n1"].takes_work


def test_the_only_node_still_gets_work() -> None:
    cluster = a_cluster(n1={})
    fail(cluster, "n1", 5)
    assert takes(cluster, "n1")


def test_if_everybody_would_rest_nobody_does() -> None:
    cluster = a_cluster(n1={}, n2={})
    fail(cluster, "n1", 5)
    fail(cluster, "n2", 5)
    assert takes(cluster, "n1")
    assert takes(cluster, "n2")


def test_who_was_let_work_for_want_of_others_rests_when_another_comes() -> None:
    cluster = a_cluster(n1={})
    fail(cluster, "n1", 5)
    cluster.add_node("n2")
    assert not takes(cluster, "n1")


def test_who_rests_works_when_the_last_other_goes() -> None:
    cluster = a_cluster(n1={}, n2={})
    fail(cluster, "n1", 5)
    waiting = on("n1")
    cluster.submit(waiting)
    assert cluster.status(waiting) == Status.PENDING
    cluster.give(Drain("n2", "new fans"))
    assert cluster.status(waiting) == Status.ASSIGNED


def test_a_drain_says_more_than_an_exclusion() -> None:
    cluster = a_cluster(n1={}, n2={})
    fail(cluster, "n1", 5)
    cluster.give(Drain("n1", "new fans"))
    waiting = on("n1")
    cluster.submit(waiting)
    said = why_reply(cluster.state, cluster.state.jobs[waiting.id], 0, cluster.now)
    assert said.dominant.code == "Maintenance"


def test_resume_ends_a_rest_and_forgives_what_failed() -> None:
    cluster = a_cluster(n1={}, n2={})
    fail(cluster, "n1", 5)
    assert not takes(cluster, "n1")
    cluster.give(Undrain("n1"))
    assert cluster.state.nodes["n1"].excluded_until is None
    assert takes(cluster, "n1")
    fail(cluster, "n1", 4)  # the count starts again
    assert takes(cluster, "n1")
    fail(cluster, "n1")
    assert not takes(cluster, "n1")


def fail_of(cluster: Cluster, user: str, tasks: int = 1) -> None:
    """A job of this user comes to n1, and all of its tasks fail there."""
    job = a_job("n1", array=f"1-{tasks}", max_retries=0, cores=1, user=user)
    cluster.submit(job)
    live = cluster.state.jobs[job.id].live
    while live:
        cluster.ended("n1", next(iter(live.values())).key, code=1)


def test_one_users_broken_program_says_nothing_of_a_node() -> None:
    cluster = a_cluster(n1={}, n2={})
    for _ in range(4):  # jobs; nobody else has any
        fail_of(cluster, "bob", 10)
    assert cluster.state.nodes["n1"].failures == 40
    assert cluster.state.nodes["n1"].takes_work


def test_failures_of_two_users_are_the_nodes() -> None:
    cluster = a_cluster(n1={}, n2={})
    fail_of(cluster, "bob", 4)
    assert cluster.state.nodes["n1"].takes_work
    fail_of(cluster, "ann")
    assert not cluster.state.nodes["n1"].takes_work


def own_fault(cluster: Cluster, message: str = "cannot write the log: No space left on device") -> None:
    job = on("n1")
    cluster.submit(job)
    cluster.tell("n1", Ended((job.id, 0, 1), Exit(Why.REFUSED, 127, message=message, of_node=True)))


def test_a_node_rests_at_once_for_its_own_fault_and_says_which() -> None:
    cluster = a_cluster(n1={}, n2={})
    own_fault(cluster)
    node = cluster.state.nodes["n1"]
    assert not node.takes_work
    view = node_view(cluster.state, node)
    assert view.note == "temporarily excluded: cannot write the log: No space left on device"
    assert view.excluded_until == cluster.now + 60.0
    again = decode_state(encode_state(cluster.state), cluster.state.rules)
    assert again.nodes["n1"].exclusion_text == node.exclusion_text


@pytest.mark.parametrize("code", ["not_found", "not_executable", "no_cwd", "not_readable"])
def test_what_a_job_asks_for_in_vain_is_not_its_nodes_fault(code: str) -> None:
    assert not exit_unstarted(code, "no program", None, 0.0).of_node
    assert exit_unstarted("spawn_failed", "no memory", None, 0.0).of_node
    assert exit_unstarted("no_log", "disk full", None, 0.0).of_node


def test_logs_and_images_of_older_versions_are_read() -> None:
    old = msgpack.encode(["NodeRested", "n1", 5, 90.0, 30.0, "report"])
    event = msgpack.decode(old, type=Event)
    assert event == NodeExcluded(at=30.0, cause="report", node="n1", failures=5, until=90.0)
    assert msgpack.decode(msgpack.encode([int(Why.EXITED), 1]), type=Exit) == Exit(Why.EXITED, 1)


@pytest.mark.parametrize("why", sorted(UNCHARGED | {Why.CANCELLED}))
def test_what_was_not_the_tasks_doing_counts_for_nothing(why: Why) -> None:
    cluster = Cluster(Timers(loss_limit=0))
    cluster.add_node("n1")
    cluster.add_node("n2")
    for _ in range(6):
        job = on("n1")
        cluster.submit(job)
        cluster.ended("n1", (job.id, 0, 1), code=1, why=why)
        cluster.give(Cancel(job.id))
    assert cluster.state.nodes["n1"].failures == 0


def test_what_was_stopped_by_us_counts_for_nothing_however_it_ends() -> None:
    cluster = a_cluster(n1={}, n2={})
    for _ in range(6):
        job = on("n1")
        cluster.submit(job)
        cluster.give(Cancel(job.id))
        cluster.ended("n1", (job.id, 0, 1), code=137)
    assert cluster.state.nodes["n1"].failures == 0


def test_the_same_failure_told_twice_counts_once() -> None:
    cluster = a_cluster(n1={}, n2={})
    fail(cluster, "n1", 3)
    job = on("n1")
    cluster.submit(job)
    cluster.ended("n1", (job.id, 0, 1), code=1)
    again = cluster.ended("n1", (job.id, 0, 1), code=1)
    assert again.disposition == Disposition.DUPLICATE  # type: ignore[union-attr]
    assert cluster.state.nodes["n1"].failures == 4


def test_why_names_the_rest_when_that_is_what_a_task_waits_for() -> None:
    cluster = a_cluster(n1={}, n2={})
    fail(cluster, "n1", 5)
    job = on("n1")
    cluster.submit(job)
    said = why_reply(cluster.state, cluster.state.jobs[job.id], 0, cluster.now)
    assert said.dominant.code == "NodeExcluded"
    assert said.dominant.numbers["until"] == cluster.now + 60.0


def test_a_storm_of_failures_is_not_a_storm_of_events() -> None:
    cluster = a_cluster(n1={})
    fail(cluster, "n1", 50)
    found = [event for turn in cluster.turns for event in turn.events if isinstance(event, NodeExcluded)]
    assert len(found) == 1


def test_without_a_limit_nobody_is_excluded() -> None:
    cluster = Cluster(Timers(breaker_failures=0))
    cluster.add_node("n1")
    cluster.add_node("n2")
    fail(cluster, "n1", 20)
    assert takes(cluster, "n1")


def test_a_rest_outlives_the_coordinator() -> None:
    cluster = a_cluster(n1={}, n2={})
    fail(cluster, "n1", 5)
    again = decode_state(encode_state(cluster.state), cluster.state.rules)
    assert (again.nodes["n1"].failures, again.nodes["n1"].excluded_until) == (5, cluster.now + 60.0)
    cluster.engine.state = again
    for name in ("n1", "n2"):
        cluster.add_node(name)  # they connect again, in the same incarnation
    assert not takes(cluster, "n1")


def test_the_price_of_a_failure_does_not_depend_on_the_number_of_nodes() -> None:
    """The floor is counted, not searched for: an end touches one row of the table."""
    cluster = Cluster()
    for number in range(50):
        cluster.add_node(f"n{number}")
    fail(cluster, "n1", 5)
    before = cluster.state.table.columns.changes.mark
    fail(cluster, "n2", 1)
    assert cluster.state.table.columns.changes.mark - before <= 4


def test_an_image_that_does_not_exist_says_nothing_of_its_node() -> None:
    cluster = a_cluster(n1={}, n2={})
    fail(cluster, "n1", 4)
    for code in ("no_image",) * 5:
        job = on("n1")
        cluster.submit(job)
        cluster.tell(
            "n1", Ended((job.id, 0, 1), exit_unstarted(code, "image a: manifest unknown", None, 0.0))
        )
        assert cluster.status(job) == Status.FAILED
    assert cluster.state.nodes["n1"].failures == 4, "it neither counts nor forgives"
    job = on("n1")
    cluster.submit(job)
    refused = exit_unstarted("bad_image", "image a: no space left on device", None, 0.0)
    cluster.tell("n1", Ended((job.id, 0, 1), refused))
    assert not takes(cluster, "n1")
