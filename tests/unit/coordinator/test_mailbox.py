"""The laws of the mailbox: what goes first, what is bounded, and that nothing in it is lost or answered twice."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phalanx.coordinator import loop as limits
from phalanx.coordinator.link import Envelope
from phalanx.coordinator.loop import FIRST_PER_TURN, SUBMITS_MAX, SUBMITS_PER_TURN, Mailbox
from phalanx.core.cluster.decision import Answer
from phalanx.core.cluster.inputs import Cancel, Drain, Heartbeat, Input, SetQuota, Submit
from phalanx.core.model.orders import Status
from phalanx.errors import TooMany
from tests.support.builders import a_job
from tests.unit.coordinator.test_declarations import a_coordinator


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


SUBMIT = Submit(a_job())
BEAT = Heartbeat("n1", "life", [], 1)


def an_envelope(*inputs: Input) -> Envelope:
    def reply(answers: list[Answer | None]) -> None:
        """Ignores the answers."""

    return list(inputs), reply


def test_what_runners_say_and_what_ends_work_goes_before_submits():
    box = Mailbox()
    submit, beat, cancel, drain = (
        an_envelope(each) for each in (SUBMIT, BEAT, Cancel("x"), Drain("n1", "why"))
    )
    for envelope in (submit, beat, cancel, drain):
        assert box.post(envelope)
    assert box.take() == [beat, cancel, drain, submit]


def test_only_so_many_submits_enter_one_turn():
    box = Mailbox()
    for _ in range(SUBMITS_PER_TURN + 5):
        box.post(an_envelope(SUBMIT))
    assert len(box.take()) == SUBMITS_PER_TURN
    assert len(box.take()) == 5


def test_a_letter_is_never_divided():
    box = Mailbox()
    large = an_envelope(SetQuota("q", None), *[SUBMIT] * (3 * SUBMITS_PER_TURN))
    box.post(an_envelope(SUBMIT))
    box.post(large)
    assert len(box.take()) == 1
    assert box.take() == [large]


def test_a_full_lane_refuses_submits_and_nothing_else():
    box = Mailbox()
    assert all(box.post(an_envelope(SUBMIT)) for _ in range(SUBMITS_MAX))
    assert not box.post(an_envelope(SUBMIT))
    assert box.post(an_envelope(BEAT))
    assert box.post(an_envelope(Cancel("x")))


def test_wishes_are_bounded_before_runners_are(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "REQUESTS_MAX", 3)
    box = Mailbox()
    assert [box.post(an_envelope(Cancel("x"))) for _ in range(4)] == [True, True, True, False]
    assert box.post(an_envelope(BEAT))


def test_a_closed_mailbox_takes_nothing_in_and_gives_out_what_it_has():
    box = Mailbox()
    envelope = an_envelope(BEAT)
    box.post(envelope)
    box.close()
    assert not box.post(an_envelope(BEAT))
    assert box.take() == [envelope]
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
        envelope = an_envelope(*kinds[word])
        box.post(envelope)
        posted.append(envelope)
        if number % every == 0:
            taken.append(box.take())
    while turn := box.take():
        taken.append(turn)
    out = [envelope for turn in taken for envelope in turn]
    assert len(out) == len(posted)
    for lane in (
        lambda envelope: type(envelope[0][0]) is Submit,
        lambda envelope: type(envelope[0][0]) is not Submit,
    ):
        assert [id(each) for each in out if lane(each)] == [id(each) for each in posted if lane(each)]
    for turn in taken:
        submits = [envelope for envelope in turn if type(envelope[0][0]) is Submit]
        assert sum(len(envelope[0]) for envelope in submits) <= SUBMITS_PER_TURN or len(submits) == 1
        assert sum(len(envelope[0]) for envelope in turn) <= FIRST_PER_TURN + SUBMITS_PER_TURN


@pytest.mark.anyio
async def test_a_full_mailbox_says_so(monkeypatch: pytest.MonkeyPatch):
    async with a_coordinator() as here:
        monkeypatch.setattr(Mailbox, "post", lambda *_: False)
        with pytest.raises(TooMany) as refused:
            await here.leadership.ask([SUBMIT])
        assert refused.value.reason == "MailboxFull"
        monkeypatch.undo()


@pytest.mark.anyio
async def test_others_are_answered_while_a_large_array_is_placed():
    async with a_coordinator() as here:
        array, other = a_job(array="1-20000", cores=0), a_job()
        await here.leadership.ask([Submit(array)])
        for _ in range(2):  # rounds of the loop that a request takes from its socket to the mailbox
            await asyncio.create_task(here.store.leader())
        await here.leadership.ask([Submit(other)])
        assert other.id in here.leadership.state.jobs
        placed = len(here.leadership.state.jobs[array.id].live)
        assert placed <= 3 * here.leadership.engine.policy.openings_max
        await here.leadership.ask([Cancel(array.id)])
        assert here.leadership.state.jobs[array.id].counts[Status.PENDING] == 0
