"""The queue of an executor's calls: shares, losses, claims, limits, and what the client has seen."""

from __future__ import annotations

import pytest

from phalanx.api.schema.calls import CallBatch, CallResult, PostedCall
from phalanx.coordinator import call_queue
from phalanx.coordinator.call_queue import UNCLAIMED_S, CallQueue, ServingWorker


def a_queue(calls: int = 0, retries: int = 3) -> CallQueue:
    queue = CallQueue("q", "3.12", 0.0)
    assert queue.post([a_batch(range(calls), retries=retries)], 0.0) == calls
    return queue


def a_batch(ids: range | list[int], *, retries: int = 3, digest: str = "f", begun: bool = False) -> CallBatch:
    return CallBatch(digest, [PostedCall(id, b"x", begun) for id in ids], b"function", retries)


def ids(batches: list[CallBatch]) -> list[int]:
    return [call.id for batch in batches for call in batch.calls]


def taken(queue: CallQueue, worker: ServingWorker, want: int = 100) -> list[int]:
    return ids(queue.take(worker, want, []))


def returned(id: int) -> CallResult:
    return CallResult(id, "returned", b"r")


def died(id: int) -> CallResult:
    return CallResult(id, "died", text="SIGKILL")


def test_calls_are_given_in_order_and_their_results_kept_until_they_are_seen():
    queue = a_queue(3)
    worker = queue.hear("j.1", 1, 0.0)
    assert [taken(queue, worker, 1) for _ in range(4)] == [[0], [1], [2], []]
    queue.give([returned(1), returned(0)], [], worker)
    results = queue.results_after(0)
    assert [each.id for each in results] == [1, 0]
    assert queue.last_of(results, 0) == 2
    assert [each.id for each in queue.results_after(1)] == [0]
    assert queue.results_after(2) == []
    assert list(queue.calls) == [2]


def test_a_worker_gets_half_of_its_share_so_that_the_others_have_some():
    queue = a_queue(100)
    first, _ = queue.hear("j.1", 1, 0.0), queue.hear("j.2", 1, 0.0)
    assert len(taken(queue, first)) == 25


def test_a_function_is_sent_once_to_a_worker_that_knows_it():
    queue = a_queue(4)
    worker = queue.hear("j.1", 1, 0.0)
    assert [batch.function for batch in queue.take(worker, 1, [])] == [b"function"]
    assert [batch.function for batch in queue.take(worker, 1, ["f"])] == [b""]


def test_a_call_that_comes_twice_is_taken_once_even_after_its_end():
    queue = a_queue(2)
    worker = queue.hear("j.1", 1, 0.0)
    taken(queue, worker, 1)
    queue.give([returned(0)], [], worker)
    queue.results_after(1)
    assert queue.post([a_batch(range(3))], 0.0) == 3
    assert list(queue.calls) == [1, 2]


def test_the_calls_of_a_lost_worker_wait_again_and_are_given_alone():
    queue = a_queue(4)
    lost, other = queue.hear("j.1", 1, 0.0), queue.hear("j.2", 1, 0.0)
    held = taken(queue, lost, 1) + taken(queue, lost, 1)
    queue.lose(lost)
    assert held == [0, 1]
    assert taken(queue, other) == [0]
    assert taken(queue, other) == []  # while it may kill its process, nothing else is at risk
    queue.give([returned(0)], [], other)
    assert taken(queue, other) == [1]
    queue.give([returned(1)], [], other)
    assert taken(queue, other) == [2]


def test_a_call_that_kills_its_process_is_lost_after_its_retries():
    queue = a_queue(1, retries=2)
    worker = queue.hear("j.1", 1, 0.0)
    for _ in range(3):
        assert taken(queue, worker) == [0]
        queue.give([died(0)], [], worker)
    (result,) = queue.results_after(0)
    assert (result.outcome, result.code) == ("died", "CallLost")
    assert "3 times" in result.text
    assert not queue.calls


def test_a_call_that_was_not_begun_is_given_back_without_a_charge():
    queue = a_queue(2, retries=0)
    worker = queue.hear("j.1", 1, 0.0)
    assert taken(queue, worker, 1) == [0]
    queue.give([], [0], worker)
    assert taken(queue, worker, 1) == [0]
    assert queue.results_after(0) == []


def test_a_later_attempt_of_a_task_takes_the_calls_of_the_former():
    queue = a_queue(1)
    taken(queue, queue.hear("j.1", 1, 0.0))
    assert taken(queue, queue.hear("j.1", 2, 0.0)) == [0]


def test_the_first_result_of_a_call_counts_whoever_sends_it():
    queue = a_queue(1)
    slow = queue.hear("j.1", 1, 0.0)
    taken(queue, slow)
    queue.give_up(slow, is_paused=False)
    fast = queue.hear("j.2", 1, 0.0)
    assert taken(queue, fast) == [0]
    queue.give([returned(0)], [], slow)
    queue.give([CallResult(0, "returned", b"late")], [], fast)
    assert [each.value for each in queue.results_after(0)] == [b"r"]
    assert not fast.held


def test_a_silent_worker_is_named_unless_it_is_paused_or_speaks_again():
    queue = a_queue()
    queue.give_up(queue.hear("j.1", 1, 0.0), is_paused=False)
    queue.give_up(queue.hear("j.2", 1, 0.0), is_paused=True)
    assert queue.silent == {"j.1": 1}
    queue.hear("j.1", 1, 0.0)
    assert queue.silent == {}


def test_calls_in_an_answer_that_was_lost_are_given_again():
    queue = a_queue(1)
    worker = queue.hear("j.1", 1, 0.0)
    queue.ask(worker, 1, 0)
    assert taken(queue, worker) == [0]
    queue.ask(worker, 2, 0)  # the answer to the first question has not arrived
    assert taken(queue, worker) == [0]
    queue.ask(worker, 3, 2)
    assert taken(queue, worker) == []


def test_only_calls_that_no_worker_has_are_withdrawn():
    queue = a_queue(3)
    taken(queue, queue.hear("j.1", 1, 0.0), 1)
    assert queue.withdraw([0, 2, 9]) == [2]
    assert list(queue.calls) == [0, 1]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_call_of_a_former_queue_stays_with_the_worker_that_has_it(is_first):
    queue = a_queue()
    holder, other = queue.hear("j.1", 1, 0.0), queue.hear("j.2", 1, 0.0)
    if is_first:
        queue.claim(holder, [5])
    queue.post([a_batch([5], begun=True)], 0.0)
    queue.claim(holder, [5])
    queue.release_unclaimed(UNCLAIMED_S + 1)
    assert taken(queue, other) == []
    queue.give([returned(5)], [], holder)
    assert [each.id for each in queue.results_after(0)] == [5]


def test_a_call_of_a_former_queue_that_nobody_has_waits_after_a_while():
    queue = a_queue()
    worker = queue.hear("j.1", 1, 0.0)
    queue.post([a_batch([5], begun=True)], 0.0)
    queue.release_unclaimed(UNCLAIMED_S)
    assert taken(queue, worker) == []
    queue.release_unclaimed(UNCLAIMED_S + 1)
    assert taken(queue, worker) == [5]


def test_calls_over_the_limits_are_left_to_the_client(monkeypatch):
    monkeypatch.setattr(call_queue, "CALLS_MAX", 3)
    queue = CallQueue("q", "3.12", 0.0)
    assert queue.post([a_batch(range(5))], 0.0) == 3
    queue.withdraw([0])
    assert queue.post([a_batch([3, 4])], 0.0) == 1
    monkeypatch.setattr(call_queue, "CALLS_BYTES_MAX", queue.bytes)
    assert queue.post([a_batch([4])], 0.0) == 0


def test_all_bytes_are_given_back():
    queue = a_queue(2)
    worker = queue.hear("j.1", 1, 0.0)
    taken(queue, worker, 2)
    taken(queue, worker, 2)
    queue.give([returned(0), died(1)], [], worker)
    queue.withdraw([1])
    queue.results_after(queue.last)
    assert (queue.bytes, queue.results_bytes) == (0, 0)


def test_no_calls_are_given_while_the_client_has_to_read(monkeypatch):
    queue = a_queue(4)
    worker = queue.hear("j.1", 1, 0.0)
    taken(queue, worker, 1)
    monkeypatch.setattr(call_queue, "RESULTS_BYTES_MAX", 10)
    queue.give([returned(0)], [], worker)
    assert queue.is_full()
    assert taken(queue, worker) == []
    queue.results_after(queue.last)
    assert taken(queue, worker, 1) == [1]
