"""Both clients over HTTP when the leader changes: which coordinator they ask next, and what they continue with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from http.client import HTTPConnection, HTTPResponse
from itertools import islice

import msgspec
import pytest

from phalanx.api.schema.cluster import ClusterView
from phalanx.api.schema.documents import spell_problem
from phalanx.api.schema.jobs import Counts, WatchEvent
from phalanx.api.schema.sse import spell_event
from phalanx.api.schema.submission import SubmitReply
from phalanx.client.async_client import AsyncClient
from phalanx.client.async_http import HttpxTransport
from phalanx.client.client import Client
from phalanx.client.http import HttpTransport
from phalanx.errors import NotActive, PhalanxError, Unavailable, Unconfirmed
from tests.support.http_servers import Script, a_cut_stream, a_free_address, a_stream, an_answer, scripted
from tests.support.rest_app import TOKEN

CLUSTER = msgspec.json.encode(ClusterView("0", 1, 0, 0, 0, 0, 0, 0, 0, 0, Counts()))
ACCEPTED = msgspec.json.encode(SubmitReply(["j1"], "j1", []))
CANCELLED = b'{"id": "j1", "cancelled": 1, "stopping": 0}'
ONE, TWO = WatchEvent(1, 1.0, "A"), WatchEvent(2, 1.0, "B")


def a_refusal(leader: str = "") -> bytes:
    return a_problem(NotActive("a standby was asked", extra={"leader": leader}))


def a_problem(error: PhalanxError) -> bytes:
    body = spell_problem(error)
    head = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


@contextmanager
def scripts(*answers: list[bytes | None]) -> Iterator[tuple[list[str], list[Script]]]:
    with ExitStack() as all:
        opened = [all.enter_context(scripted(each)) for each in answers]
        yield [address for address, _ in opened], [script for _, script in opened]


def a_client(addresses: list[str], patience_s: float = 5.0) -> Client:
    return Client(token=TOKEN, exchange=HttpTransport(addresses, patience_s=patience_s))


def an_async_client(addresses: list[str]) -> AsyncClient:
    return AsyncClient(token=TOKEN, exchange=HttpxTransport(addresses, patience_s=5.0))


def test_a_search_for_a_leader_is_told_after_a_second(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("phalanx.client.http.SEARCH_TOLD_S", 0.05)
    told: list[str] = []
    with scripts([*[a_refusal()] * 3, an_answer(CLUSTER)]) as (addresses, _):
        exchange = HttpTransport(addresses, patience_s=5.0, on_search=lambda error: told.append(error.detail))
        with Client(token=TOKEN, exchange=exchange) as client:
            client.cluster()
    assert told
    assert set(told) == {"a standby was asked"}


def test_a_dead_address_is_passed_over_and_the_leader_remembered():
    with scripts([an_answer(CLUSTER)] * 2) as ([alive], [script]):
        dead = a_free_address()
        with a_client([dead, alive]) as client:
            client.cluster()
            client.cluster()
    assert script.connections == 1


def test_a_wish_goes_to_the_leader_whom_a_standby_names():
    with (
        scripted([an_answer(CANCELLED)]) as (leader, led),
        scripted([a_refusal(leader)]) as (standby, asked),
        a_client([standby, leader]) as client,
    ):
        assert client.cancel("j1").cancelled == 1
    assert (len(asked.requests), len(led.requests)) == (1, 1)
    assert b"Phalanx-Read: leader" in asked.requests[0]


def test_the_one_standby_is_asked_again_until_it_leads():
    with (
        scripts([a_refusal(), a_refusal(), an_answer(ACCEPTED)]) as (addresses, [script]),
        a_client(addresses) as client,
    ):
        assert client.submit(command=["true"]).batch_id == "j1"
    assert len(script.requests) == 3


def test_a_submission_whose_answer_was_lost_is_given_to_the_next_leader_as_the_same():
    with (
        scripts([None], [an_answer(ACCEPTED)]) as (addresses, [first, second]),
        a_client(addresses) as client,
    ):
        client.submit(command=["true"])
    bodies = [script.requests[0].partition(b"\r\n\r\n")[2] for script in (first, second)]
    assert bodies[0] == bodies[1]
    assert b"request_id" in bodies[0]


def test_a_cancel_whose_answer_was_lost_is_not_given_to_the_next():
    with (
        scripts([None], [an_answer(CANCELLED)]) as (addresses, [_, second]),
        a_client(addresses) as client,
        pytest.raises(Unavailable) as caught,
    ):
        client.cancel("j1")
    assert caught.value.reason == "Dropped"
    assert second.requests == []


def test_a_watch_goes_on_with_the_new_leader_without_a_gap():
    cut = a_cut_stream(spell_event(ONE), spell_event(TWO)[:9])
    answers: list[list[bytes | None]] = [[cut, a_refusal()], [a_cut_stream(spell_event(TWO))]]
    with scripts(*answers) as (addresses, [first, second]), a_client(addresses) as client:
        assert list(islice(client.watch(), 2)) == [ONE, TWO]
    assert b"Last-Event-ID: 1\r\n" in second.requests[0]
    assert len(first.requests) == 1  # the coordinator that cut a stream is not asked first


def test_a_log_goes_on_with_the_new_leader_with_exactly_what_is_missing():
    cut, rest = a_cut_stream(b"one\n", b"tw", offset=10), a_stream(b"o\n", offset=16)
    answers: list[list[bytes | None]] = [[cut, *[a_refusal()] * 3], [a_refusal(), rest, a_stream(offset=18)]]
    with scripts(*answers) as (addresses, [_, second]), a_client(addresses) as client:
        assert b"".join(client.logs("j1", attempt=1, follow=True)) == b"one\ntwo\n"
    assert b"attempt=1&offset=16&split=true&follow=true" in second.requests[1]


def a_file(*pieces: bytes, whole: bytes, cut: bool = False) -> bytes:
    head = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Phalanx-Size: %d\r\nX-Phalanx-Sha256: %s\r\n\r\n"
    )
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    return head % (len(whole), sha256(whole).hexdigest().encode()) + chunks + (b"" if cut else b"0\r\n\r\n")


@pytest.mark.anyio
async def test_a_file_goes_on_where_its_connection_was_cut():
    answers = [a_file(b"wei", whole=b"weights", cut=True), a_file(b"w", b"eigh", b"ts", whole=b"weights")]
    with scripts([*answers], [*answers]) as ([first, second], _):
        with a_client([first]) as client:
            assert [*client.file("j1", "model.pt")] == [b"wei", b"gh", b"ts"]
        async with an_async_client([second]) as others:
            assert [piece async for piece in others.file("j1", "model.pt")] == [b"wei", b"gh", b"ts"]


@pytest.mark.parametrize(
    ("again", "reason"),
    [
        (a_file(b"wei", whole=b"weights", cut=True), "Dropped"),
        (a_file(b"another", whole=b"another"), "FileChanged"),
    ],
    ids=["cut there again, as what is damaged", "of another attempt"],
)
def test_a_file_that_cannot_go_on_is_not_asked_for_a_third_time(again: bytes, reason: str):
    with scripts([a_file(b"wei", whole=b"weights", cut=True), again, again]) as (addresses, [script]):
        with a_client(addresses) as client, pytest.raises(PhalanxError) as caught:
            list(client.file("j1", "model.pt"))
        assert (caught.value.reason, len(script.requests)) == (reason, 2)
        script.answers.clear()


@pytest.mark.anyio
async def test_only_one_for_whom_the_task_waits_asks_again_for_a_log_that_cannot_be_read_at_first():
    away = a_problem(Unavailable("its runner went away", reason="LogUnavailable"))
    answers = [away, a_stream(b"all\n", offset=0), a_stream(offset=4)]
    with scripts([*answers], [*answers], [away]) as ([first, second, third], [_, _, plain]):
        with a_client([first]) as client:
            assert b"".join(client.logs("j1", offset=0, follow="hold")) == b"all\n"
        async with an_async_client([second]) as others:
            assert [piece async for piece in others.logs("j1", offset=0, follow="hold")] == [b"all\n"]
        with a_client([third]) as client, pytest.raises(Unavailable):
            list(client.logs("j1", follow=True))
    assert len(plain.requests) == 1


def test_what_each_address_said_is_told_in_the_end():
    dead = [a_free_address(), a_free_address()]
    with a_client(dead, patience_s=0.2) as client, pytest.raises(Unavailable) as caught:
        client.cluster()
    assert caught.value.reason == "NoLeader"
    assert all(address in caught.value.detail for address in dead)


def test_a_token_is_not_sent_where_a_standby_points_if_nobody_gave_us_that_place():
    with (
        scripted([an_answer(CANCELLED)]) as (trap, fallen),
        scripted([a_refusal(trap)] * 9) as (standby, _),
        a_client([standby], 0.2) as client,
        pytest.raises(Unavailable),
    ):
        client.cancel("j1")
    assert fallen.requests == []


@pytest.mark.anyio
async def test_the_async_client_follows_as_well():
    with scripted([an_answer(CANCELLED)]) as (leader, _), scripted([a_refusal(leader)]) as (standby, _):
        async with an_async_client([a_free_address(), standby, leader]) as client:
            assert (await client.cancel("j1")).cancelled == 1


@pytest.mark.anyio
async def test_a_log_of_the_async_client_goes_on_with_the_new_leader():
    cut, rest = a_cut_stream(b"one\n", b"tw", offset=10), a_stream(b"o\n", offset=16)
    with scripts([cut], [rest, a_stream(offset=18)]) as (addresses, [_, second]):
        async with an_async_client(addresses) as client:
            pieces = [piece async for piece in client.logs("j1", attempt=1, follow=True)]
    assert b"".join(pieces) == b"one\ntwo\n"
    assert b"offset=16" in second.requests[0]


@pytest.mark.anyio
async def test_a_submission_of_the_async_client_that_is_never_answered_names_its_request_id():
    with scripts([None, None]) as (addresses, [script]):
        async with an_async_client(addresses) as client:
            with pytest.raises(Unconfirmed, match="not known whether request") as caught:
                await client.submit(command=["true"])
    assert caught.value.extra["request_id"].encode() in script.requests[0]


@pytest.mark.anyio
async def test_the_async_client_recognises_what_is_not_http():
    with scripts([b"SSH-2.0-x\r\n\r\n"]) as (addresses, _):
        async with an_async_client(addresses) as client:
            with pytest.raises(Unavailable, match="does not speak HTTP") as caught:
                await client.submit(command=["true"])
    assert caught.value.reason == "NotHttp"


@pytest.mark.anyio
async def test_what_must_not_be_done_twice_is_not_repeated_by_the_async_client():
    with scripts([None], [an_answer(CANCELLED)]) as (addresses, [_, second]):
        async with an_async_client(addresses) as client:
            with pytest.raises(Unavailable):
                await client.cancel("j1")
    assert second.requests == []


def test_answers_are_closed_before_the_next_call(monkeypatch: pytest.MonkeyPatch):
    """Else Python closes them when it throws them away, and an interrupt that comes just then is lost."""
    answers: list[HTTPResponse] = []

    class Noted(HTTPResponse):
        def begin(self) -> None:
            answers.append(self)
            super().begin()

    monkeypatch.setattr(HTTPConnection, "response_class", Noted)
    with scripts([an_answer(CLUSTER)] * 2) as (addresses, _), a_client(addresses) as client:
        for _ in range(2):
            client.cluster()
            assert answers[-1].closed
    assert len(answers) == 2
