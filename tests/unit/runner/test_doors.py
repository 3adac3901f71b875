"""Which door a runner knocks at next."""

from __future__ import annotations

from phalanx.runner.doors import HOPELESS_S, SHUNNED_S, Doors

A, B, C = "a:1", "b:1", "c:1"


def test_a_dead_door_is_left_for_the_next_at_once():
    doors = Doors([A, B, C])
    assert doors.failed(0.0, silent=True)
    assert doors.at == B


def test_when_all_doors_were_tried_there_is_a_pause():
    doors = Doors([A, B])
    assert doors.failed(0.0, silent=True)
    assert not doors.failed(0.0, silent=True)
    assert doors.at == A


def test_a_standby_sends_us_to_the_leader_at_once():
    doors = Doors([A, B, C])
    assert doors.standby(C, 0.0)
    assert doors.at == C


def test_a_standby_that_knows_no_leader_is_followed_by_a_pause_and_the_next():
    doors = Doors([A, B, C])
    assert not doors.standby("", 0.0)
    assert doors.at == B


def test_a_stranger_is_not_followed():
    doors = Doors([A, B])
    assert not doors.standby("evil:1", 0.0)
    assert doors.at == B


def test_a_stranger_whom_our_authority_vouches_for_is_followed():
    doors = Doors([A, B], vouched=True)
    assert doors.standby("new:1", 0.0)
    assert doors.at == "new:1"
    assert doors.failed(0.0, silent=True)
    assert doors.at in (A, B)


def test_a_door_that_kept_silent_is_not_believed_to_be_the_leaders_for_a_while():
    doors = Doors([A, B])
    doors.failed(0.0, silent=True)
    doors.standby("", 0.0)  # a pause, after which every door is worth trying again
    doors.at = B
    assert not doors.standby(A, 1.0)
    doors.at = B
    assert doors.standby(A, SHUNNED_S)


def test_a_single_door_is_tried_again_after_a_pause():
    doors = Doors([A])
    assert not doors.failed(0.0, silent=False)
    assert doors.at == A


def test_the_leaders_door_is_that_of_the_last_welcome():
    doors = Doors([A, B])
    doors.failed(0.0, silent=True)
    doors.welcomed()
    doors.failed(0.0, silent=False)
    assert (doors.leader, doors.at) == (B, A)


def test_the_only_door_that_refuses_us_is_the_end():
    doors = Doors([A])
    assert not doors.is_hopeless(0.0)
    doors.refused(0.0)
    assert doors.is_hopeless(0.0)


def test_one_of_several_that_refuses_us_is_left_for_the_next():
    doors = Doors([A, B, C])
    assert doors.refused(0.0)
    assert doors.at == B
    assert not doors.is_hopeless(0.0)


def test_when_every_door_refuses_us_that_is_the_end():
    doors = Doors([A, B])
    doors.refused(0.0)
    doors.refused(0.0)
    assert doors.is_hopeless(0.0)


def test_a_refusal_by_the_leader_of_the_others_is_the_end_once_it_cannot_be_an_old_one():
    doors = Doors([A, B])
    doors.refused(0.0)
    doors.standby(A, 0.1)
    assert not doors.is_hopeless(0.1)
    assert doors.is_hopeless(HOPELESS_S)


def test_a_refusal_by_one_that_nobody_calls_the_leader_is_never_the_end():
    doors = Doors([A, B, C])
    for second in range(100):
        doors.at = A
        doors.refused(second)
        doors.at = B
        doors.standby(C, second)
        doors.at = C
        doors.failed(second, silent=True)
        assert not doors.is_hopeless(second)


def test_a_welcome_ends_all_doubts():
    doors = Doors([A, B])
    doors.refused(0.0)
    doors.welcomed()
    doors.standby(A, HOPELESS_S)
    assert not doors.is_hopeless(2 * HOPELESS_S)
