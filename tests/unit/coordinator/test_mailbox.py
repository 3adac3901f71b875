"""The laws of the mailbox: what goes first, what is bounded, and that nothing in it is lost or said twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.coordinator import mailbox as limits
from phalanx.coordinator.links import Letter
from phalanx.coordinator.mailbox import FIRST_PER_TURN, SUBMITS_MAX, SUBMITS_PER_TURN, Mailbox
from phalanx.core.cluster.decision import Answer
from phalanx.core.cluster.inputs import Cancel, Drain, Heartbeat, Input, SetQuota, Submit
from tests.builders import a_job

SUBMIT = Submit(a_job())
BEAT = Heartbeat("n1", "life", [], 1)


def a_letter(*inputs: Input) -> Letter:
    def reply(answers: list[Answer | None]) -> None:
        """Nobody listens."""

    return list(inputs), reply


def test_what_runners_say_and_what_ends_work_goes_before_submits():
    box = Mailbox()
    submit, beat, cancel, drain = (a_letter(each) for each in (SUBMIT, BEAT, Cancel("x"), Drain("n1", "why")))
    for letter in (submit, beat, cancel, drain):
        assert box.post(letter)
    assert box.take() == [beat, cancel, drain, submit]


def test_only_so_many_submits_enter_one_turn():
    box = Mailbox()
    for _ in range(SUBMITS_PER_TURN + 5):
        box.post(a_letter(SUBMIT))
    assert len(box.take()) == SUBMITS_PER_TURN
    assert len(box.take()) == 5


def test_a_letter_is_never_divided():
    box = Mailbox()
    large = a_letter(SetQuota("q", None), *[SUBMIT] * (3 * SUBMITS_PER_TURN))
    box.post(a_letter(SUBMIT))
    box.post(large)
    assert len(box.take()) == 1
    assert box.take() == [large]


def test_a_full_lane_refuses_submits_and_nothing_else():
    box = Mailbox()
    assert all(box.post(a_letter(SUBMIT)) for _ in range(SUBMITS_MAX))
    assert not box.post(a_letter(SUBMIT))
    assert box.post(a_letter(BEAT))
    assert box.post(a_letter(Cancel("x")))


def test_wishes_are_bounded_before_runners_are(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "WISHES_MAX", 3)
    box = Mailbox()
    assert [box.post(a_letter(Cancel("x"))) for _ in range(4)] == [True, True, True, False]
    assert box.post(a_letter(BEAT))


def test_a_closed_mailbox_takes_nothing_in_and_gives_out_what_it_has():
    box = Mailbox()
    letter = a_letter(BEAT)
    box.post(letter)
    box.close()
    assert not box.post(a_letter(BEAT))
    assert box.take() == [letter]
    assert not box


@given(st.lists(st.sampled_from(["beat", "cancel", "submit", "many"]), max_size=60), st.integers(1, 5))
def test_every_letter_comes_out_once_and_in_the_order_of_its_lane(words: list[str], every: int):
    kinds: dict[str, list[Input]] = {
        "beat": [BEAT],
        "cancel": [Cancel("x")],
        "submit": [SUBMIT],
        "many": [SUBMIT] * 70,
    }
    box, posted, taken = Mailbox(), [], []
    for number, word in enumerate(words):
        letter = a_letter(*kinds[word])
        box.post(letter)
        posted.append(letter)
        if number % every == 0:
            taken.append(box.take())
    while turn := box.take():
        taken.append(turn)
    out = [letter for turn in taken for letter in turn]
    assert len(out) == len(posted)
    for lane in (
        lambda letter: type(letter[0][0]) is Submit,
        lambda letter: type(letter[0][0]) is not Submit,
    ):
        assert [id(each) for each in out if lane(each)] == [id(each) for each in posted if lane(each)]
    for turn in taken:
        submits = [letter for letter in turn if type(letter[0][0]) is Submit]
        assert sum(len(letter[0]) for letter in submits) <= SUBMITS_PER_TURN or len(submits) == 1
        assert sum(len(letter[0]) for letter in turn) <= FIRST_PER_TURN + SUBMITS_PER_TURN
