"""The clock of a term: until when a leader may send, and when it renews."""

from __future__ import annotations

from phalanx.coordinator.term import Term


def test_a_term_holds_for_a_little_less_than_its_lease_from_when_it_was_asked_for():
    term = Term(epoch=3, lease_s=6.0, sent_at=100.0)
    assert term.holds(105.6)
    assert not term.holds(105.7)


def test_a_renewal_counts_from_when_it_was_sent():
    term = Term(3, 6.0, 100.0)
    term.renewed(102.0)  # whenever the answer came
    assert term.holds(107.6)
    assert not term.holds(107.8)


def test_an_answer_that_comes_late_takes_nothing_back():
    term = Term(3, 6.0, 100.0)
    term.renewed(104.0)
    term.renewed(102.0)
    assert term.holds(109.6)


def test_it_is_renewed_after_a_third_and_sooner_when_that_failed():
    term = Term(3, 6.0, 100.0)
    assert term.renew_at() == 102.0
    term.tries(102.0)
    assert term.renew_at() == 102.5
    term.renewed(102.0)
    assert term.renew_at() == 104.0
