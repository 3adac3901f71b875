"""The recorder counts each task's fate once, and only of turns that are durable."""

from __future__ import annotations

import gc

import pytest
from msgspec import structs

from phalanx.coordinator.metrics.recorder import COMPLETED_MAX, Recorder
from phalanx.core.cluster.image import encode_state
from phalanx.core.cluster.inputs import Cancel, Evict, Leave, RemoveNode
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState, Timers
from phalanx.core.model.job import After, Job, Restart
from phalanx.core.model.orders import Started, Status
from phalanx.store.protocol import Batch, Loaded
from tests.support.builders import a_gang, a_group, a_job
from tests.unit.coordinator.metrics.recorded import RecordedCluster, a_recorded_cluster


def submitted_at(job: Job, at: float) -> Job:
    return structs.replace(job, submitted_at=at)


def test_a_job_that_always_fails_is_requeued_for_each_retry_and_then_failed():
    cluster = a_recorded_cluster(n1={"cores": 1})
    job = a_job(max_retries=2)
    cluster.submit(job)
    for _ in range(10):
        cluster.run_all(job, code=1)
        cluster.wait(2.0)
        cluster.beat("n1")
    recorder = cluster.recorder
    assert recorder.started == 3
    assert recorder.requeued == {"worker_failed": 2}
    assert cluster.counted_ends() == [0, 1, 0]
    assert cluster.status(job) == Status.FAILED


def test_an_array_counts_by_tasks():
    cluster = a_recorded_cluster(n1={"cores": 2})
    job = a_job(array="0-4")
    cluster.submit(job)
    cluster.run_all(job)
    assert (cluster.recorder.submitted, cluster.recorder.started) == (5, 5)
    assert cluster.counted_ends() == [5, 0, 0] == cluster.true_ends()


def test_tasks_that_end_with_their_job_are_counted_once_even_when_their_attempts_end_later():
    cluster = a_recorded_cluster(n1={"cores": 2})
    array, other = a_job(array="0-9"), a_job()
    cluster.submit(array)
    cluster.submit(other)
    cluster.give(Cancel(array.id, None))
    assert cluster.counted_ends() == [0, 0, 10] == cluster.true_ends()
    cluster.stop_all()
    assert cluster.counted_ends() == [0, 0, 10] == cluster.true_ends()
    cluster.run_all(other)
    assert cluster.counted_ends() == [1, 0, 10] == cluster.true_ends()


def test_one_cancelled_task_of_an_array():
    cluster = a_recorded_cluster(n1={"cores": 1})
    job = a_job(array="0-2")
    cluster.submit(job)
    cluster.give(Cancel(job.id, 2))
    cluster.run_all(job)
    assert cluster.counted_ends() == [2, 0, 1] == cluster.true_ends()


def test_a_failure_goes_down_the_chain_of_those_that_start_after():
    cluster = a_recorded_cluster(n1={"cores": 1})
    a = a_job(max_retries=0)
    b = a_job(after=(After(a.id),))
    c = a_job(after=(After(b.id),))
    for job in (a, b, c):
        cluster.submit(job)
    cluster.run_all(a, code=1)
    assert cluster.counted_ends() == [0, 3, 0] == cluster.true_ends()


def test_a_gang_that_starts_anew_requeues_its_members_also_those_that_had_done_their_part():
    cluster = a_recorded_cluster(n1={"cores": 3})
    job = a_gang(a_group(3), limit=1)
    cluster.submit(job)
    live = cluster.state.jobs[job.id].live
    keys = [attempt.key for attempt in live.values()]
    for key in keys:
        cluster.ready("n1", key)
    for key in keys:
        cluster.started("n1", key)
    cluster.ended("n1", keys[0])  # done, and Completed only with the whole
    cluster.ended("n1", keys[1], code=1)
    cluster.stop_all()
    assert cluster.recorder.requeued == {"worker_failed": 1, "restarted": 2}
    assert cluster.counted_ends() == [0, 0, 0] == cluster.true_ends()
    assert cluster.recorder.barrier_wait.count == 1


def test_completed_with_the_whole():
    cluster = a_recorded_cluster(n1={"cores": 2})
    job = a_job(array="0-1", restart=Restart(whole=True, limit=1))
    cluster.submit(job)
    cluster.run_all(job)
    assert cluster.counted_ends() == [2, 0, 0] == cluster.true_ends()


def test_a_lost_node_requeues_without_a_charge_and_says_why():
    cluster = a_recorded_cluster(n1={"cores": 1})
    job = a_job()
    cluster.submit(job)
    cluster.started("n1", (job.id, 0, 1))
    cluster.wait(31.0)
    assert cluster.recorder.requeued == {"lost": 1}
    assert cluster.recorder.accounts.unregistered == 1


def test_queue_time_adds_the_waits_of_all_attempts_and_execution_is_the_last_ones():
    cluster = a_recorded_cluster(n1={"cores": 1})
    job = submitted_at(a_job(max_retries=1, tags=(("task-type", "sft"),)), cluster.now - 4.0)
    cluster.submit(job)
    cluster.finish((job.id, 0, 1), code=1, took_s=3.0)  # its retry is at once
    cluster.finish((job.id, 0, 2), took_s=5.0)
    timings = cluster.recorder.timings["training"]
    assert timings.queue.count == 1
    assert timings.queue.total_s == pytest.approx(4.0)
    assert timings.execution.count == 1
    assert timings.execution.total_s == pytest.approx(5.0)
    assert timings.total.count == 1
    assert timings.total.total_s == pytest.approx(12.0)
    assert cluster.recorder.timings["other"].queue.count == 0


def test_the_wait_after_a_requeue_is_added():
    cluster = a_recorded_cluster(n1={"cores": 1})
    job = submitted_at(a_job(max_retries=3), cluster.now)
    cluster.submit(job)
    cluster.finish((job.id, 0, 1), code=1)
    cluster.finish((job.id, 0, 2), code=1)  # the next try is a second later
    cluster.wait(2.0)
    assert cluster.recorder.timings["other"].queue.total_s == pytest.approx(2.0)
    assert cluster.recorder.timings["other"].queue.count == 1
    assert cluster.recorder.queue_wait.count == 3


@pytest.mark.parametrize(
    ("task_type", "category"),
    [
        ("inference", "inference"),
        ("dpo", "training"),
        ("image_classification_training", "training"),
        ("rag", "other"),
        ("image_classification", "other"),
    ],
)
def test_categories_follow_the_task_type(task_type: str, category: str):
    cluster = a_recorded_cluster(n1={"cores": 1})
    job = a_job(tags=(("team", "sft"), ("task-type", task_type)))
    cluster.submit(job)
    cluster.run_all(job)
    counted = {name: timings.execution.count for name, timings in cluster.recorder.timings.items()}
    assert counted == {"inference": 0, "training": 0, "other": 0} | {category: 1}


def test_evictions_by_an_operator_and_for_a_more_urgent_job():
    cluster = a_recorded_cluster(n1={"cores": 1})
    low, high = a_job(), a_job(priority=10)
    cluster.submit(low)
    cluster.started("n1", (low.id, 0, 1))
    cluster.submit(high)
    assert cluster.recorder.preemptions == {"priority": 1, "operator": 0}
    cluster.stop_all()
    assert cluster.recorder.requeued == {"evicted": 1}
    cluster.give(Evict(high.id, None, "eve"))
    assert cluster.recorder.preemptions == {"priority": 1, "operator": 1}


def test_stale_reports_are_counted():
    cluster = a_recorded_cluster(n1={"cores": 1})
    job = a_job()
    cluster.submit(job)
    cluster.tell("n1", Started((job.id, 0, 1), 1.0), generation=77)
    assert cluster.recorder.fenced == 1


def test_nodes_register_and_unregister_once():
    cluster = a_recorded_cluster(n1={"cores": 1}, n2={"cores": 1})
    accounts = cluster.recorder.accounts
    assert (accounts.registered, accounts.unregistered, accounts.active) == (2, 0, 2)
    cluster.give(Leave("n1", "a", cluster.lease("n1"), 0.0))
    cluster.beat("n2")
    assert cluster.recorder.heartbeats == 1
    cluster.now += 20.0
    cluster.beat("n2")
    cluster.wait(11.0)  # the lease of n1 is over as well
    assert (accounts.registered, accounts.unregistered, accounts.active) == (2, 1, 1)
    cluster.give(RemoveNode("n1", "eve"))
    assert (accounts.unregistered, set(accounts.by_node)) == (1, {"n2"})


def test_what_is_kept_for_single_tasks_is_bounded():
    cluster = a_recorded_cluster(n1={"cores": 100})
    job = a_job(array=f"0-{COMPLETED_MAX + 50}", max_retries=1)
    cluster.submit(job)
    for position in range(5):
        cluster.finish((job.id, position, 1), code=1)
    cluster.run_all(job)
    recorder = cluster.recorder
    assert len(recorder.completed) == COMPLETED_MAX
    assert recorder.ended[Status.COMPLETED] == COMPLETED_MAX + 51
    assert (recorder._again, recorder._again_count, recorder._drafts, recorder._barriers) == ({}, 0, {}, {})


def test_ended_jobs_that_leave_memory_stay_counted():
    cluster = RecordedCluster(Timers(ended_jobs_max=1))
    cluster.add_node("n1", cores=1)
    for _ in range(3):
        job = a_job()
        cluster.submit(job)
        cluster.run_all(job)
        cluster.wait(1.0)
    assert cluster.state.counts[Status.COMPLETED] == 1
    assert cluster.counted_ends() == [3, 0, 0]


def batches_of(cluster: RecordedCluster) -> list[Batch]:
    return [batch for turn in cluster.turns if (batch := turn.batch()) is not None]


def test_what_was_kept_although_its_answer_was_lost_is_counted_when_the_log_is_read_again():
    cluster = RecordedCluster()
    cluster.add_node("n1", cores=2)
    job = a_job(array="0-1")
    cluster.submit(job)
    seen = Recorder()
    seen.resume(Loaded(None, 0, []), ClusterState(), 1.0)
    for turn in cluster.turns:
        seen.observe(turn, cluster.state)
    behind = cluster.state.revision
    cluster.give(Cancel(job.id, None))  # `seen` is not told
    assert seen.ended[Status.CANCELLED] == 0
    loaded = Loaded(None, 0, batches_of(cluster))
    seen.resume(loaded, cluster.state, cluster.now)
    assert seen.ended[Status.CANCELLED] == 2
    assert seen.missed == 0
    seen.resume(loaded, cluster.state, cluster.now)
    assert seen.ended[Status.CANCELLED] == 2
    assert behind < cluster.state.revision


def test_a_new_process_begins_at_zero_and_one_that_fell_behind_says_how_much_it_missed():
    cluster = RecordedCluster()
    cluster.add_node("n1", cores=2)
    job = a_job()
    cluster.submit(job)
    fresh = Recorder()
    loaded = Loaded(encode_state(cluster.state), cluster.state.revision, [])
    fresh.resume(loaded, cluster.state, cluster.now)
    assert (fresh.submitted, fresh.missed, fresh.accounts.active) == (0, 0, 1)
    cluster.submit(a_job())
    later = Loaded(encode_state(cluster.state), cluster.state.revision, [])
    before = loaded.image_revision
    fresh.resume(later, cluster.state, cluster.now)
    assert (fresh.submitted, fresh.missed) == (0, cluster.state.revision - before)


def test_a_state_that_is_discarded_does_not_live_on_in_the_recorder():
    cluster = RecordedCluster()
    cluster.add_node("n1", cores=1)
    job = a_job()
    cluster.submit(job)
    recorder = cluster.recorder
    del cluster
    gc.collect()
    assert [each for each in gc.get_objects() if isinstance(each, JobState) and each.job is job] == []
    assert recorder.submitted == 1
