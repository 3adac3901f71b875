"""The sync client: the same calls over HTTP and in process, and what it does when the connection breaks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import msgspec
import pytest

from phalanx.api.schema.cluster import ClusterView
from phalanx.api.schema.jobs import Counts, WatchEvent
from phalanx.api.schema.log_times import gap_mark
from phalanx.api.schema.queues import QuotaSpec
from phalanx.api.schema.sse import spell_event
from phalanx.api.schema.submission import SubmitReply, SubmitRequest
from phalanx.client.client import Client
from phalanx.errors import BadRequest, Conflict, Gone, NotFound, Unauthorized, Unavailable, Unconfirmed
from phalanx.link.wire import Rejected, pack
from tests.support.fake_commands import FakeCommands
from tests.support.http_servers import a_cut_stream, a_free_address, a_stream, an_answer, scripted, serving
from tests.support.rest_app import TOKEN, RestApp, a_client, a_rest_app
from tests.support.rpc_servers import serving_rpc

CLUSTER = msgspec.json.encode(ClusterView("0", 1, 0, 0, 0, 0, 0, 0, 0, 0, Counts()))
ACCEPTED = msgspec.json.encode(SubmitReply(["j1"], "j1", []))
ONE, TWO = WatchEvent(1, 1.0, "A"), WatchEvent(2, 1.0, "B")


@contextmanager
def over_http(house: RestApp) -> Iterator[Client]:
    with serving(house.app) as address, Client(address, TOKEN) as client:
        yield client


@contextmanager
def over_grpc(house: RestApp) -> Iterator[Client]:
    with serving_rpc(house) as address, Client(address, TOKEN) as client:
        yield client


@pytest.fixture(params=[a_client, over_http, over_grpc], ids=["in process", "over http", "over grpc"])
def way(request: pytest.FixtureRequest):
    return request.param


def test_every_call_arrives_and_comes_back(way):
    house = a_rest_app(FakeCommands(endless=False))
    with way(house) as client:
        reply = client.submit(command=["echo", "hi"], name="first", targets=["n1"])
        (id,) = reply.task_ids
        assert client.submit(SubmitRequest(["true"], array="0-9")).accepted[0].tasks == 10
        assert client.job(id[:-1] + id[-1]).name == "first"
        assert [job.name for job in client.jobs(name="first").items] == ["first"]
        assert client.tasks(id).items[0].job_id == id
        assert client.task(id).id == id
        assert client.pause(id).paused
        assert not client.resume(id).paused
        assert client.release(id).id == id
        assert client.why(id).dominant.code == "WaitingCapacity"
        assert client.story(id).items[0].event == "JobSubmitted"
        assert client.story("n1", of="nodes").items
        assert [node.name for node in client.nodes()] == ["n1", "n2"]
        assert client.drain("n1", "dust").drain_reason == "dust"
        assert not client.undrain("n1").drained
        assert client.set_elastic("n1", enabled=False, reason="dust").disabled_reason == "by ada: dust"
        assert not client.set_elastic("n1", enabled=True).elastic_disabled
        assert client.node("n1").name == "n1"
        assert client.cluster().jobs == 2
        assert client.evict(id).evicted == 1
        assert client.apply({"groups": [{"command": ["true"], "tasks": 3}]}).jobs[0].tasks == 3
        assert client.apply({"name": "flat", "command": ["true"], "tasks": 2}).jobs[0].tasks == 2
        assert client.gang(["true"], 4, min=2, gather=["rack:must"]).accepted[0].tasks == 4
        assert client.set_quota("lab", QuotaSpec(gpus=8)).quota.gpus == 8
        assert client.set_quota("lab", None).quota is None
        assert client.queue("lab").name == "lab"
        assert [queue.name for queue in client.queues()] == ["default", "lab"]
        assert client.set_topology({"layers": [{"name": "row", "keys": ["row"]}]}).layers[1] == "row"
        assert client.wait(id, 0, must_end=False).status == "Pending"
        with pytest.raises(TimeoutError, match="must_end=False"):
            client.wait(id, 0)
        assert client.cancel(id).cancelled == 1
        assert client.wait(id).status == "Cancelled"
        assert b"".join(client.logs(id)) == b""
        client.ready()


def test_errors_are_those_of_the_cluster(way):
    house = a_rest_app()
    with way(house) as client:
        with pytest.raises(NotFound):
            client.job("zz")
        with pytest.raises(BadRequest, match="cores"):
            client.submit(command=["true"], cores="many")
        with pytest.raises(NotFound):
            list(client.logs("zz"))
        with pytest.raises(NotFound):
            client.job("../../etc")
        id = client.submit(command=["true"]).task_ids[0]
        client.cancel(id)
        with pytest.raises(Conflict):
            client.cancel(id)
        house.cluster.compacted = 9
        with pytest.raises(Gone):
            next(client.watch(after=1))


def test_a_wrong_token_is_refused():
    with (
        serving(a_rest_app().app) as address,
        Client(address, "phx_wrong") as client,
        pytest.raises(Unauthorized),
    ):
        client.cluster()


def test_a_watch_and_a_log_come_as_they_happen(way):
    house = a_rest_app()
    with way(house) as client:
        watching = client.watch(after=0)
        id = client.submit(command=["true"]).task_ids[0]
        assert next(watching).event == "JobSubmitted"
        client.cancel(id)
        assert next(watching).event == "JobEnded"
        watching.close()


def test_threads_may_share_a_client():
    house = a_rest_app()
    with serving(house.app) as address, Client(address, TOKEN) as client:
        ids: list[str] = []

        def submit_some() -> None:
            ids.extend(client.submit(command=["true"]).task_ids[0] for _ in range(20))

        threads = [threading.Thread(target=submit_some) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(ids)) == 80


def test_nobody_there_is_told_with_a_hint():
    with Client(a_free_address(), TOKEN) as client, pytest.raises(Unavailable) as caught:
        client.cluster()
    assert caught.value.reason == "Unreachable"
    assert "phalanx up" in caught.value.hint
    with Client(a_free_address(), TOKEN) as client, pytest.raises(Unavailable):
        next(client.watch())


@pytest.mark.parametrize("address", ["localhost", "ftp://x", "http://", ""])
def test_what_is_no_address_is_refused(address: str):
    with pytest.raises(BadRequest):
        Client(address, TOKEN)


def test_the_token_is_not_shown():
    with Client("http://127.0.0.1:1", TOKEN) as client:
        assert TOKEN not in repr(client)


def test_connections_are_kept():
    with scripted([an_answer(CLUSTER)] * 3) as (address, script), Client(address, TOKEN) as client:
        for _ in range(3):
            client.cluster()
    assert script.connections == 1


def test_a_connection_closed_while_idle_is_not_used_again_even_for_what_must_not_be_repeated():
    cancelled = b'{"id": "j1", "cancelled": 1, "stopping": 0}'
    answers = [
        an_answer(CLUSTER).replace(b"OK\r\nContent-Length", b"OK\r\nX: y\r\nContent-Length"),
        an_answer(cancelled),
    ]
    with scripted([*answers]) as (address, script), Client(address, TOKEN) as client:
        client.cluster()
        script.hung_up.wait()
        assert client.cancel("j1").cancelled == 1
    assert script.connections == 2


def test_a_read_cut_off_before_its_answer_is_repeated_once():
    with scripted([None, an_answer(CLUSTER)]) as (address, script), Client(address, TOKEN) as client:
        client.cluster()
    assert len(script.requests) == 2
    with (
        scripted([None, None]) as (address, _),
        Client(address, TOKEN) as client,
        pytest.raises(Unavailable) as caught,
    ):
        client.cluster()
    assert caught.value.reason == "Dropped"


def test_a_submission_cut_off_before_its_answer_is_repeated_as_the_same():
    with scripted([None, an_answer(ACCEPTED)]) as (address, script), Client(address, TOKEN) as client:
        client.submit(command=["true"])
    first, second = [request.partition(b"\r\n\r\n")[2] for request in script.requests]
    assert first == second
    assert b"request_id" in first


def test_a_submission_that_is_never_answered_names_its_request_id():
    with (
        scripted([None, None]) as (address, script),
        Client(address, TOKEN) as client,
        pytest.raises(Unconfirmed, match="not known whether request") as caught,
    ):
        client.submit(command=["true"])
    assert caught.value.extra["request_id"].encode() in script.requests[0]


def test_a_cancel_cut_off_is_not_repeated():
    with scripted([None, an_answer(b"{}")]) as (address, script), Client(address, TOKEN) as client:
        with pytest.raises(Unavailable):
            client.cancel("j1")
        assert len(script.requests) == 1
        client.ready()


def test_an_answer_cut_in_its_body_is_no_answer():
    cut = b"HTTP/1.1 200 OK\r\nX: y\r\nContent-Length: 100\r\n\r\nhalf"
    with scripted([cut, cut]) as (address, _), Client(address, TOKEN) as client, pytest.raises(Unavailable):
        client.cluster()


def test_what_is_not_http_is_no_answer():
    other = b"SSH-2.0-x\r\n\r\n"
    with (
        scripted([other, other]) as (address, _),
        Client(address, TOKEN) as client,
        pytest.raises(Unavailable),
    ):
        client.cluster()


def test_the_port_for_runners_is_recognised():
    """It answers in frames."""
    frame = pack(Rejected("NotUnderstood", "no", True))
    with (
        scripted([frame]) as (address, _),
        Client(address, TOKEN) as client,
        pytest.raises(Unavailable, match="does not speak HTTP") as caught,
    ):
        client.submit(command=["true"])
    assert "port for runners (7434 by default)" in caught.value.hint
    assert not isinstance(caught.value, Unconfirmed)


def test_a_watch_goes_on_after_a_cut_without_a_gap():
    cut = a_cut_stream(spell_event(ONE), spell_event(TWO)[:9])
    with (
        scripted([cut, a_cut_stream(spell_event(TWO))]) as (address, script),
        Client(address, TOKEN) as client,
    ):
        assert list(islice(client.watch(), 2)) == [ONE, TWO]
    assert b"Last-Event-ID" not in script.requests[0]
    assert b"Last-Event-ID: 1\r\n" in script.requests[1]


def test_a_watch_goes_on_after_an_end_as_well():
    answers = [a_stream(spell_event(ONE)), a_stream(spell_event(TWO))]
    with scripted([*answers]) as (address, _), Client(address, TOKEN) as client:
        assert list(islice(client.watch(), 2)) == [ONE, TWO]


def test_a_log_goes_on_after_a_cut_with_exactly_what_is_missing():
    answers = [
        a_cut_stream(b"one\n", b"tw", offset=10),
        a_stream(b"o\n", offset=16),
        a_stream(offset=18),  # nothing follows: that was all
    ]
    with scripted([*answers]) as (address, script), Client(address, TOKEN) as client:
        assert b"".join(client.logs("j1", attempt=1, lines=2, follow=True)) == b"one\ntwo\n"
    assert b"lines=2" in script.requests[0]
    assert b"attempt=1&offset=16&split=true&follow=true" in script.requests[1]


@pytest.mark.parametrize("follow", [False, True])
def test_what_was_not_kept_of_a_log_is_marked_and_the_rest_is_read(follow: bool):
    answers = [
        a_stream(b"begin\n", offset=0, size=100),
        a_stream(b"end\n", offset=96, size=100, gap=90),
        a_stream(offset=100, size=100),
    ]
    with scripted([*answers]) as (address, script), Client(address, TOKEN) as client:
        told = b"".join(client.logs("j1", attempt=1, follow=follow))
    assert told == b"begin\n" + gap_mark(90) + b"end\n"
    assert b"90 bytes of this log were not kept" in told
    assert b"attempt=1&offset=6&" in script.requests[1]
    assert len(script.requests) == (3 if follow else 2)


def test_closing_the_client_ends_a_watch_in_another_thread():
    house = a_rest_app()
    with serving(house.app) as address:
        client = Client(address, TOKEN)
        client.submit(command=["true"])
        begun, ended = threading.Event(), threading.Event()

        def watch() -> None:
            try:
                for _ in client.watch(after=0):
                    begun.set()
            except Unavailable:
                ended.set()

        thread = threading.Thread(target=watch)
        thread.start()
        begun.wait()
        client.close()
        thread.join()
        assert ended.is_set()
