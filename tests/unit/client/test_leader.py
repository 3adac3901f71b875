"""Following the leader: where a call goes next, when it is repeated, and the final error."""

from __future__ import annotations

import pytest

from phalanx.api.schema.submission import SubmitRequest
from phalanx.client import calls
from phalanx.client.http import unreachable
from phalanx.client.leader import SILENCE_S, TRY_S, KnownLeader, LeaderSearch, addresses_of
from phalanx.errors import (
    BadRequest,
    NotActive,
    NotFound,
    PhalanxError,
    Unauthorized,
    Unavailable,
    Unconfirmed,
)

A, B, C = "http://a:1", "http://b:1", "http://c:1"


def a_search(
    known_leader: KnownLeader, call: calls.Call | None = None, patience_s: float = 30.0
) -> LeaderSearch:
    return LeaderSearch(known_leader, call or calls.cluster(), patience_s)


def standby(leader: str = "") -> NotActive:
    return NotActive("a standby was asked", extra={"leader": leader})


def failure(reason: str) -> Unavailable:
    return Unavailable(f"it is {reason}", reason=reason)


def way(search: LeaderSearch, *errors: PhalanxError, now: float = 0.0) -> list[str]:
    """Where the search goes, failing at each place in turn."""
    been = [search.address]
    for error in errors:
        search.failed(error, now)
        been.append(search.address)
    return been


def test_addresses_may_stand_in_one_text():
    assert addresses_of(f"{A}/, {B}") == (A, B)
    assert addresses_of([A, A, B]) == (A, B)


def test_no_address_at_all_is_refused():
    with pytest.raises(BadRequest, match="no address"):
        addresses_of([])


def test_a_dead_address_sends_us_to_the_next():
    assert way(a_search(KnownLeader([A, B, C])), failure("Unreachable"), failure("Unreachable")) == [A, B, C]


def test_a_standby_sends_us_to_the_leader():
    search = a_search(KnownLeader([A, B, C]))
    assert way(search, standby(C)) == [A, C]


def test_a_token_is_not_shown_to_a_place_that_was_not_given():
    assert way(a_search(KnownLeader([A, B])), standby("http://elsewhere:1")) == [A, B]
    assert way(a_search(KnownLeader([A, B], vouched=True)), standby("http://elsewhere:1")) == [A, B]


def test_a_place_that_our_own_authority_vouches_for_is_followed():
    known_leader = KnownLeader(["https://a", "https://b"], vouched=True)
    assert way(a_search(known_leader), standby("https://new")) == ["https://a", "https://new"]


def test_who_led_last_is_asked_first():
    known_leader = KnownLeader([A, B])
    search = a_search(known_leader)
    way(search, standby(B))
    search.found()
    assert a_search(known_leader).address == B


def test_standbys_that_name_a_dead_leader_do_not_send_us_round_and_round():
    search = a_search(KnownLeader([A, B, C]))
    assert way(search, standby(B), failure("Unreachable"), standby(B)) == [A, B, C, A]


def test_a_new_round_comes_after_a_pause_and_begins_with_those_who_answer():
    search = a_search(KnownLeader([A, B]))
    search.failed(failure("Unreachable"), 0.0)
    assert search.failed(standby(), 0.0) > 0
    assert search.address == B


def test_pauses_grow_and_stay_small():
    search = a_search(KnownLeader([A]))
    pauses = [search.failed(standby(), 0.0) for _ in range(10)]
    assert pauses == sorted(pauses)
    assert pauses[0] < 0.1 < pauses[-1] <= 1.0


def test_one_dead_address_is_told_at_once():
    with pytest.raises(Unavailable) as caught:
        a_search(KnownLeader([A])).failed(failure("Unreachable"), 0.0)
    assert caught.value.reason == "Unreachable"


def test_one_address_whose_standby_answers_is_waited_for():
    search = a_search(KnownLeader([A]))
    assert way(search, standby()) == [A, A]
    assert way(search, standby(), now=29.9) == [A, A]
    with pytest.raises(NotActive):
        search.failed(standby(), 30.0)


def test_a_read_on_one_address_is_repeated_once_after_a_cut():
    search = a_search(KnownLeader([A]))
    assert search.failed(failure("Dropped"), 0.0) == 0.0
    with pytest.raises(Unavailable):
        search.failed(failure("Dropped"), 0.0)


@pytest.mark.parametrize("reason", ["Dropped", "TimedOut"])
def test_what_may_have_been_done_and_must_not_be_done_twice_is_not_repeated(reason: str):
    with pytest.raises(Unavailable) as caught:
        a_search(KnownLeader([A, B]), calls.cancel("j1")).failed(failure(reason), 0.0)
    assert caught.value.reason == reason


@pytest.mark.parametrize("reason", ["Dropped", "TimedOut"])
def test_a_submit_that_was_not_answered_may_have_been_accepted_and_says_how_to_repeat_it(reason: str):
    """A frozen coordinator carries it out later: a new submission instead of a repetition would run it twice."""
    search = a_search(KnownLeader([A]), calls.submit(None, {"command": ["true"], "request_id": "r1"}))
    search.failed(failure("Dropped"), 0.0)
    with pytest.raises(Unconfirmed) as caught:
        search.failed(failure(reason), 0.0)
    assert (caught.value.reason, caught.value.exit_code) == (reason, 69)
    assert "it is not known whether request r1 was accepted" in caught.value.detail
    assert "--request-id r1" in caught.value.hint
    assert caught.value.extra == {"request_id": "r1"}


def test_a_submit_that_one_of_several_did_not_answer_may_have_been_accepted():
    search = a_search(KnownLeader([A, B]), calls.submit(None, {"command": ["true"]}), 5.0)
    way(search, failure("TimedOut"), failure("Unreachable"), failure("Unreachable"))
    with pytest.raises(Unconfirmed, match=r"no coordinator leads.*it is not known whether request"):
        search.failed(failure("Unreachable"), 5.0)


def test_what_was_not_answered_says_whether_to_repeat_it():
    for call, hint in (
        (calls.cancel("j1"), "look whether it was done"),
        (calls.set_quota("lab", None), "no harm"),
        (calls.apply({"name": "x"}), "in Python request_id="),
    ):
        with pytest.raises(Unconfirmed, match=f"{call.method} {call.path}|request") as caught:
            a_search(KnownLeader([A]), call).failed(failure("TimedOut"), 0.0)
        assert hint in caught.value.hint
        assert "--request-id" not in caught.value.hint


@pytest.mark.parametrize("call", [calls.job("j1"), calls.plan(SubmitRequest(command=["true"]))])
def test_a_question_that_was_not_answered_has_changed_nothing(call: calls.Call[object]):
    with pytest.raises(Unavailable) as caught:
        a_search(KnownLeader([A]), call).failed(failure("TimedOut"), 0.0)
    assert not isinstance(caught.value, Unconfirmed)


def test_a_submit_that_reached_nobody_was_not_accepted():
    with pytest.raises(Unavailable) as caught:
        a_search(KnownLeader([A]), calls.submit(None, {"command": ["true"]})).failed(
            failure("Unreachable"), 0.0
        )
    assert not isinstance(caught.value, Unconfirmed)


@pytest.mark.parametrize("error", [failure("Unreachable"), standby()])
def test_what_was_surely_not_done_goes_to_the_next(error: PhalanxError):
    assert way(a_search(KnownLeader([A, B]), calls.cancel("j1")), error) == [A, B]


@pytest.mark.parametrize("reason", ["Dropped", "TimedOut", "Stopping", "StoreUnavailable"])
def test_a_submit_goes_to_the_next_whatever_became_of_it(reason: str):
    submit = calls.submit(None, {"command": ["true"]})
    search = a_search(KnownLeader([A, B]), submit)
    assert search.doubts(failure(reason))
    assert way(search, failure(reason)) == [A, B]


def test_an_answer_of_the_leader_is_the_calls_own():
    search = a_search(KnownLeader([A, B]))
    assert not search.doubts(NotFound("no such job"))
    assert not search.doubts(failure("LogUnavailable"))


def test_a_token_is_wrong_only_if_everybody_says_so():
    search, no = a_search(KnownLeader([A, B]), calls.cancel("j1")), Unauthorized("this token is not accepted")
    assert search.doubts(no)
    assert way(search, no) == [A, B]
    assert not search.doubts(no)
    assert not a_search(KnownLeader([A])).doubts(no)


def test_when_patience_ends_each_address_is_quoted():
    search = a_search(KnownLeader([A, B]), patience_s=5.0)
    way(search, failure("Unreachable"), standby())
    with pytest.raises(Unavailable) as caught:
        search.failed(failure("TimedOut"), 5.0)
    assert caught.value.reason == "NoLeader"
    assert f"{A}: it is Unreachable" in caught.value.detail
    assert f"{B}: it is TimedOut" in caught.value.detail


def test_the_timeout_of_a_call_beats_our_patience():
    call: calls.Call[str] = calls.Call(method="GET", path="/", repeatable=True, answer=str, timeout_s=2.0)
    search = a_search(KnownLeader([A, B]), call)
    way(search, failure("Unreachable"))
    with pytest.raises(Unavailable):
        search.failed(failure("Unreachable"), 2.0)


def test_patience_counts_from_the_first_failure_for_a_long_poll_may_take_its_time():
    search = a_search(KnownLeader([A, B]), calls.wait("j1", 10.0))
    assert way(search, failure("TimedOut"), now=100.0) == [A, B]


def test_reads_want_the_leader_and_take_a_standby_only_when_nobody_leads():
    search = a_search(KnownLeader([A, B]))
    assert search.headers == {"Phalanx-Read": "leader"}
    way(search, standby(), standby())
    assert search.headers == {}
    assert search.doubts(NotFound("a standby that lags behind")) is True


def test_a_wait_never_takes_a_standby():
    search = a_search(KnownLeader([A, B]), calls.wait("j1", 5.0))
    way(search, standby(), standby())
    assert search.headers == {"Phalanx-Read": "leader"}


def test_what_a_standby_answered_does_not_make_it_the_leader():
    known_leader = KnownLeader([A, B])
    search = a_search(known_leader)
    way(search, standby(), standby(), standby())
    search.found()
    assert known_leader.leader == A


def test_a_frozen_leader_is_not_waited_for_longer_than_needed():
    search = a_search(KnownLeader([A, B]))
    assert search.answer_s == TRY_S
    assert a_search(KnownLeader([A, B]), calls.wait("j1", 20.0)).answer_s == 20.0 + TRY_S
    assert a_search(KnownLeader([A, B]), calls.watch(None, None)).silence_s == SILENCE_S
    assert a_search(KnownLeader([A]), calls.cluster()).answer_s == calls.TIMEOUT_S


def test_an_address_that_fell_silent_is_not_asked_first_again():
    known_leader = KnownLeader([A, B])
    a_search(known_leader).failed(failure("TimedOut"), 0.0)
    assert a_search(known_leader).address == B


def test_when_no_address_can_be_trusted_that_is_told_at_once():
    search = a_search(KnownLeader([A, B]))
    assert search.failed(failure("Untrusted"), 0.0) == 0.0
    with pytest.raises(Unavailable, match=f"no coordinator can be trusted: {A}: .*; {B}: ") as caught:
        search.failed(failure("Untrusted"), 0.0)
    assert caught.value.reason == "Untrusted"


def test_one_that_may_come_back_is_waited_for_though_the_other_cannot_be_trusted():
    search = a_search(KnownLeader([A, B]))
    assert way(search, failure("Untrusted"), failure("Unreachable")) == [A, B, A]


@pytest.mark.parametrize(
    ("address", "named"), [("http://here", True), ("http://here:1", False), ("https://here", False)]
)
def test_an_address_without_a_port_is_told_the_usual_one(address: str, named: bool):
    refused = unreachable(address, ConnectionRefusedError(111, "refused"))
    assert (f"{address}:7433" in refused.hint) == named
