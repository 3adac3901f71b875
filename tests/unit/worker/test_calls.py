"""What a worker has in hand: how far it asks ahead, and what happens to calls behind a slow or dead one."""

from __future__ import annotations

from phalanx.api.schema.calls import BATCH_CALLS_MAX, CallBatch, CallResult, PostedCall
from phalanx.worker.calls import FUNCTIONS_MAX, STUCK_S, CallsInHand


def a_batch(ids: range, digest: str = "f") -> CallBatch:
    return CallBatch(digest, [PostedCall(id, b"x") for id in ids], b"function")


def returned(*ids: int) -> list[CallResult]:
    return [CallResult(id, "returned") for id in ids]


def with_short_calls() -> CallsInHand:
    """A worker that has seen many calls of a tenth of a millisecond."""
    hand = CallsInHand()
    for number in range(60):
        hand.add(a_batch(range(number, number + 1)), number * 1.0)
        hand.ended(returned(number), number + 0.00005)
    hand.results.clear()
    return hand


def test_calls_of_unknown_length_are_asked_for_one_by_one():
    hand = CallsInHand()
    assert hand.want == 1
    hand.add(a_batch(range(1)), 0.0)
    assert hand.want == 0
    hand.ended(returned(0), 60.0)
    assert hand.want == 1


def test_short_calls_are_asked_for_in_advance():
    hand = with_short_calls()
    assert hand.want == BATCH_CALLS_MAX
    hand.add(a_batch(range(100, 100 + BATCH_CALLS_MAX)), 50.0)
    assert hand.want == 0


def test_one_long_call_ends_asking_in_advance():
    hand = with_short_calls()
    hand.add(a_batch(range(100, 101)), 50.0)
    hand.ended(returned(100), 60.0)
    assert hand.depth == 1


def test_calls_behind_a_long_one_are_asked_back_once_and_returned():
    hand = with_short_calls()
    hand.add(a_batch(range(100, 110)), 50.0)
    assert not hand.is_stuck(50.0 + STUCK_S / 2)
    assert hand.is_stuck(50.0 + STUCK_S)
    assert not hand.is_stuck(50.0 + 2 * STUCK_S)
    assert hand.want == 0
    hand.gave_back(list(range(101, 110)))
    assert hand.next_message() == ([], list(range(101, 110)))
    assert list(hand.running) == [100]


def test_a_process_that_died_names_the_call_that_ran_and_returns_the_others():
    hand = CallsInHand()
    hand.add(a_batch(range(3)), 0.0)
    hand.ended(returned(0), 0.1)
    hand.died("SIGSEGV")
    results, back = hand.next_message()
    assert [(each.id, each.outcome) for each in results] == [(0, "returned"), (1, "died")]
    assert back == [2]
    assert not hand.known  # the next process has to be sent every function again


def test_what_was_not_sent_stays_in_hand():
    hand = CallsInHand()
    hand.add(a_batch(range(2)), 0.0)
    hand.ended(returned(0, 1), 0.1)
    hand.sent(1, 0)
    assert [each.id for each in hand.next_message()[0]] == [1]


def test_functions_are_counted_as_the_process_counts_them():
    hand = CallsInHand()
    for number in range(FUNCTIONS_MAX + 1):
        hand.add(a_batch(range(number, number + 1), str(number)), 0.0)
    assert "0" not in hand.known
    assert len(hand.known) == FUNCTIONS_MAX
