"""Logins of browsers as cluster state: tickets work once, logins end, and images and replays know the same."""

from __future__ import annotations

import hashlib

from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.core.cluster import inputs as i
from phalanx.core.cluster.decision import Accepted, Answer, Refused
from phalanx.core.cluster.events import Event, decode, encode
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.state import ClusterState, Timers
from phalanx.core.cluster.transitions import apply, decide
from phalanx.core.model.credential import Credential
from phalanx.core.model.login import (
    IDLE_S,
    LOGIN_S,
    LOGINS_PER_USER_MAX,
    TICKET_S,
    TICKETS_PER_USER_MAX,
    USED_EVERY_S,
    Login,
)


def d(word: str) -> bytes:
    return hashlib.sha256(word.encode()).digest()


class Stage:
    """A state that decides and applies, at a time that the test sets."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.now = 1000.0
        self.events: list[Event] = []

    def do(self, given: i.Input) -> Answer | None:
        decision = decide(self.state, given, self.now)
        for event in decision.events:
            apply(self.state, event)
        assert self.state.skipped == 0
        self.events += decision.events
        return decision.answer

    def ticket(self, word: str, name: str = "ada", parent: str = "p") -> Answer | None:
        return self.do(i.MakeLoginTicket(d(word), name, "user", parent, ("http://a",)))

    def opens(self, ticket: str, cookie: str) -> Answer | None:
        return self.do(i.OpenLogin(d(ticket), d(cookie), d(f"next {cookie}")))

    def login(self, cookie: str) -> Login:
        return self.state.logins.by_digest[d(cookie)]


def code(answer: Answer | None) -> str:
    return answer.reason.code if isinstance(answer, Refused) else ""


def test_a_ticket_opens_one_login_as_its_user():
    stage = Stage()
    assert isinstance(stage.ticket("t"), Accepted)
    assert code(stage.opens("t", "c")) == ""
    login = stage.login("c")
    assert (login.name, login.role, login.parent, login.addresses) == ("ada", "user", "p", ("http://a",))
    assert login.expires_at == stage.now + LOGIN_S
    assert code(stage.opens("t", "c2")) == "TicketRefused"
    assert code(stage.opens("unknown", "c2")) == "TicketRefused"


def test_a_ticket_is_good_for_a_minute():
    stage = Stage()
    stage.ticket("t")
    stage.now += TICKET_S
    assert code(stage.opens("t", "c")) == "TicketRefused"
    stage.ticket("t2")
    assert list(stage.state.logins.tickets) == [d("t2")]  # the old one is forgotten


def test_the_ticket_for_the_next_coordinator_takes_the_place_of_its_login():
    stage = Stage()
    stage.ticket("t")
    stage.opens("t", "c")
    until = stage.login("c").expires_at
    stage.now += 3600.0
    assert code(stage.opens("next c", "c2")) == ""
    assert list(stage.state.logins.by_digest) == [d("c2")]
    assert stage.login("c2").expires_at == until  # nobody lengthens their own time
    assert code(stage.opens("next c", "c3")) == "TicketRefused"


def test_an_idle_login_and_an_old_one_are_over():
    stage = Stage()
    stage.ticket("t")
    stage.opens("t", "c")
    login = stage.login("c")
    assert login.is_valid(stage.now + IDLE_S - 1)
    assert not login.is_valid(stage.now + IDLE_S)
    stage.now += IDLE_S
    assert code(stage.opens("next c", "c2")) == "TicketRefused"
    stage.now -= 1
    stage.do(i.UseLogins((login.id,)))
    assert stage.login("c").used_at == stage.now
    assert not stage.login("c").is_valid(login.expires_at)


def test_uses_are_written_down_now_and_then():
    stage = Stage()
    stage.ticket("t")
    stage.opens("t", "c")
    id = stage.login("c").id
    stage.now += USED_EVERY_S - 1
    before = len(stage.events)
    stage.do(i.UseLogins((id, "unknown")))
    assert len(stage.events) == before
    stage.now += 1
    stage.do(i.UseLogins((id, "unknown")))
    assert len(stage.events) == before + 1


def test_a_user_has_so_many_tickets_and_logins():
    stage = Stage()
    for number in range(TICKETS_PER_USER_MAX):
        assert code(stage.ticket(f"t{number}")) == ""
    assert code(stage.ticket("one more")) == "TooManyTickets"
    assert code(stage.ticket("another's", "bob")) == ""
    for number in range(LOGINS_PER_USER_MAX + 2):
        stage.now += TICKET_S
        stage.ticket(f"u{number}")
        assert code(stage.opens(f"u{number}", f"c{number}")) == ""
    assert len(stage.state.logins.of_user("ada")) == LOGINS_PER_USER_MAX
    assert d("c0") not in stage.state.logins.by_digest  # the one that was used longest ago gave way


def test_a_login_of_a_revoked_token_opens_nothing():
    stage = Stage()
    stage.do(i.CreateCredential(Credential("p", "user", d("token"), 1.0, "ada", "user")))
    stage.ticket("t")
    stage.ticket("t2")
    stage.opens("t", "c")
    stage.do(i.RevokeCredential("p"))
    assert code(stage.opens("t2", "c2")) == "TicketRefused"
    assert code(stage.opens("next c", "c2")) == "TicketRefused"


def test_a_voucher_opens_one_login():
    stage = Stage()
    given = i.VouchLogin(d("c"), d("n"), "ada", "admin")
    assert code(stage.do(given)) == ""
    assert stage.login("c").is_of_proxy
    assert code(stage.do(given)) == "TicketRefused"


def test_a_login_is_ended_once():
    stage = Stage()
    stage.ticket("t")
    stage.opens("t", "c")
    id = stage.login("c").id
    assert code(stage.do(i.EndLogin(id))) == ""
    assert code(stage.do(i.EndLogin(id))) == "LoginNotFound"
    assert stage.state.logins.by_digest == stage.state.logins.by_next == {}


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ticket"), st.integers(0, 5)),
        st.tuples(st.just("open"), st.integers(0, 5)),
        st.tuples(st.just("next"), st.integers(0, 12)),
        st.tuples(st.just("end"), st.integers(0, 12)),
        st.tuples(st.just("use"), st.integers(0, 12)),
        st.tuples(st.just("wait"), st.sampled_from([1, 30, 61, 601, 7200, 43_201, 400_000])),
    ),
    max_size=30,
)


@settings(deadline=None)
@given(STEPS)
def test_a_replay_and_an_image_know_what_the_state_knows(steps: list[tuple[str, int]]):
    stage = Stage()
    for number, (kind, which) in enumerate(steps):
        if kind == "wait":
            stage.now += which
        elif kind == "ticket":
            stage.ticket(f"t{which}", f"user{which % 2}")
        elif kind == "open":
            stage.opens(f"t{which}", f"c{number}")
        elif kind == "next":
            stage.opens(f"next c{which}", f"c{number}")
        else:
            known = stage.state.logins.by_digest.get(d(f"c{which}"))
            if known is not None:
                stage.do(i.EndLogin(known.id) if kind == "end" else i.UseLogins((known.id,)))
    replayed = ClusterState()
    for event in decode(encode(stage.events)):
        apply(replayed, event)
    assert encode_state(replayed) == encode_state(stage.state)
    restored = decode_state(encode_state(stage.state), Timers()).logins
    logins = stage.state.logins
    assert (restored.tickets, restored.by_id) == (logins.tickets, logins.by_id)
    assert (restored.by_digest, restored.by_next) == (logins.by_digest, logins.by_next)
    assert len(logins.by_id) == len(logins.by_digest) == len(logins.by_next)
