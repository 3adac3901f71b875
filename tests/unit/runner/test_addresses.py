"""Which address a runner connects to next."""

from __future__ import annotations

from phalanx.runner.addresses import AVOIDED_S, HOPELESS_S, LinkAddresses

A, B, C = "a:1", "b:1", "c:1"


def test_a_dead_door_is_left_for_the_next_at_once():
    addresses = LinkAddresses([A, B, C])
    assert addresses.failed(0.0, silent=True)
    assert addresses.at == B


def test_when_all_doors_were_tried_there_is_a_pause():
    addresses = LinkAddresses([A, B])
    assert addresses.failed(0.0, silent=True)
    assert not addresses.failed(0.0, silent=True)
    assert addresses.at == A


def test_a_standby_sends_us_to_the_leader_at_once():
    addresses = LinkAddresses([A, B, C])
    assert addresses.standby(C, 0.0)
    assert addresses.at == C


def test_a_standby_that_knows_no_leader_is_followed_by_a_pause_and_the_next():
    addresses = LinkAddresses([A, B, C])
    assert not addresses.standby("", 0.0)
    assert addresses.at == B


def test_a_stranger_is_not_followed():
    addresses = LinkAddresses([A, B])
    assert not addresses.standby("evil:1", 0.0)
    assert addresses.at == B


def test_a_stranger_whom_our_authority_vouches_for_is_followed():
    addresses = LinkAddresses([A, B], vouched=True)
    assert addresses.standby("new:1", 0.0)
    assert addresses.at == "new:1"
    assert addresses.failed(0.0, silent=True)
    assert addresses.at in (A, B)


def test_a_door_that_kept_silent_is_not_believed_to_be_the_leaders_for_a_while():
    addresses = LinkAddresses([A, B])
    addresses.failed(0.0, silent=True)
    addresses.standby("", 0.0)  # a pause, after which every address is worth trying again
    addresses.at = B
    assert not addresses.standby(A, 1.0)
    addresses.at = B
    assert addresses.standby(A, AVOIDED_S)


def test_a_single_door_is_tried_again_after_a_pause():
    addresses = LinkAddresses([A])
    assert not addresses.failed(0.0, silent=False)
    assert addresses.at == A


def test_the_leaders_door_is_that_of_the_last_welcome():
    addresses = LinkAddresses([A, B])
    addresses.failed(0.0, silent=True)
    addresses.welcomed()
    addresses.failed(0.0, silent=False)
    assert (addresses.leader, addresses.at) == (B, A)


def test_the_only_door_that_refuses_us_is_the_end():
    addresses = LinkAddresses([A])
    assert not addresses.is_hopeless(0.0)
    addresses.refused(0.0)
    assert addresses.is_hopeless(0.0)


def test_one_of_several_that_refuses_us_is_left_for_the_next():
    addresses = LinkAddresses([A, B, C])
    assert addresses.refused(0.0)
    assert addresses.at == B
    assert not addresses.is_hopeless(0.0)


def test_when_every_door_refuses_us_that_is_the_end():
    addresses = LinkAddresses([A, B])
    addresses.refused(0.0)
    addresses.refused(0.0)
    assert addresses.is_hopeless(0.0)


def test_a_refusal_by_the_leader_of_the_others_is_the_end_once_it_cannot_be_an_old_one():
    addresses = LinkAddresses([A, B])
    addresses.refused(0.0)
    addresses.standby(A, 0.1)
    assert not addresses.is_hopeless(0.1)
    assert addresses.is_hopeless(HOPELESS_S)


def test_a_refusal_by_one_that_nobody_calls_the_leader_is_never_the_end():
    addresses = LinkAddresses([A, B, C])
    for second in range(100):
        addresses.at = A
        addresses.refused(second)
        addresses.at = B
        addresses.standby(C, second)
        addresses.at = C
        addresses.failed(second, silent=True)
        assert not addresses.is_hopeless(second)


def test_a_welcome_ends_all_doubts():
    addresses = LinkAddresses([A, B])
    addresses.refused(0.0)
    addresses.welcomed()
    addresses.standby(A, HOPELESS_S)
    assert not addresses.is_hopeless(2 * HOPELESS_S)
