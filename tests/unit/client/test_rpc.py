"""Clients over gRPC: where they connect, their error when nothing answers there, and what TLS is for."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from pathlib import Path

import grpc  # type: ignore[import-untyped]
import pytest

from phalanx.client.async_client import AsyncClient
from phalanx.client.client import Client
from phalanx.client.rpc import GrpcTransport, ThreadedGrpcTransport
from phalanx.errors import BadRequest, NotActive, Unauthorized, Unavailable
from phalanx.tls import ServerTls
from tests.support import late_grpc
from tests.support.certificate_authority import Authority
from tests.support.http_servers import a_free_address, serving
from tests.support.rest_app import TOKEN, a_rest_app
from tests.support.rpc_servers import serving_rpc


def quick(*addresses: str, patience_s: float = 2.0) -> Client:
    return Client(token=TOKEN, exchange=ThreadedGrpcTransport(addresses, patience_s=patience_s))


def test_a_wrong_token_is_refused():
    with (
        serving_rpc(a_rest_app()) as address,
        Client(address, "phx_wrong") as client,
        pytest.raises(Unauthorized),
    ):
        client.submit(command=["true"])


def test_nobody_there_is_told_with_a_hint():
    nobody = a_free_address().replace("http", "grpc")
    with quick(nobody) as client, pytest.raises(Unavailable) as caught:
        client.cluster()
    assert caught.value.reason == "Unreachable" and "--grpc-port" in caught.value.hint


def test_the_port_of_rest_is_no_port_of_grpc():
    with (
        serving(a_rest_app().app) as address,
        quick(address.replace("http", "grpc")) as client,
        pytest.raises(Unavailable) as caught,
    ):
        client.submit(command=["true"])
    assert "--grpc-port" in caught.value.hint


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("grpc://head:7435", "expected grpcs, or a loopback"),
        ("grpc://127.0.0.1", "has no port"),
        ("grpc://127.0.0.1:1,http://127.0.0.1:2", "all of them over HTTP, or all over gRPC"),
    ],
)
def test_what_is_no_address_is_refused(address: str, says: str):
    with pytest.raises(BadRequest, match=says):
        Client(address, TOKEN)


def test_a_dead_address_is_passed_over():
    dead = a_free_address().replace("http", "grpc")
    with serving_rpc(a_rest_app()) as alive, quick(dead, alive) as client:
        assert client.submit(command=["true"]).task_ids


def test_a_standby_is_passed_over_for_the_one_that_leads():
    standby, active = a_rest_app(), a_rest_app()
    standby.cluster.standby = NotActive("a standby was asked", extra={"leader": "https://elsewhere:7433"})
    with serving_rpc(standby) as first, serving_rpc(active) as second, quick(first, second) as client:
        assert client.submit(command=["true"]).task_ids
        assert client.cancel(client.submit(command=["true"]).task_ids[0]).cancelled == 1
    assert len(active.cluster.held) == 2 and not standby.cluster.held


def test_a_standby_sends_a_call_to_the_given_address_at_the_host_of_the_leader():
    standby, other, active = a_rest_app(), a_rest_app(), a_rest_app()
    standby.cluster.standby = NotActive("a standby was asked", extra={"leader": "https://localhost:7433"})
    with (
        serving_rpc(standby) as first,
        serving_rpc(other) as second,
        serving_rpc(active) as third,
        quick(first, second, third.replace("127.0.0.1", "localhost")) as client,
    ):
        assert client.submit(command=["true"]).task_ids
    assert len(active.cluster.held) == 1 and not other.cluster.held


def test_a_watch_goes_on_where_it_was_cut():
    house = a_rest_app()
    with serving_rpc(house) as first:
        port = int(first.rpartition(":")[2])
        client = quick(first)
        watching = client.watch(after=0)
        client.submit(command=["true"])
        seen = next(watching)
    with serving_rpc(a_rest_app(house.cluster), port=port) as again:
        assert again == first
        with client:
            client.submit(command=["true"])
            assert next(watching).revision == seen.revision + 1
            watching.close()  # type: ignore[attr-defined]  # it is a generator


@contextmanager
def another_loop() -> Iterator[list[object]]:
    """A loop in another thread that uses gRPC, too; yields what went wrong in it."""
    wrong: list[object] = []
    opened, ended = threading.Event(), threading.Event()

    async def work() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, about: wrong.append(about))
        async with grpc.aio.insecure_channel("127.0.0.1:1"):
            opened.set()
            await asyncio.to_thread(ended.wait)

    thread = threading.Thread(target=asyncio.run, args=(work(),))
    thread.start()
    opened.wait()
    yield wrong
    ended.set()
    thread.join()


def test_a_stream_that_is_closed_disturbs_no_other_loop_of_the_process():
    """gRPC has one queue of events for all loops: one that comes for a closed loop fails in another."""

    async def watched(address: str) -> None:
        async with AsyncClient(token=TOKEN, exchange=GrpcTransport(address)) as client:
            await client.submit(command=["true"])
            async with aclosing(client.watch(after=0)) as watching:
                await anext(watching)

    heard_before = len(late_grpc.heard)
    with another_loop() as wrong, serving_rpc(a_rest_app()) as address:
        for _ in range(60):
            asyncio.run(watched(address))
            with quick(address) as client:
                watching = client.watch(after=0)
                next(watching)
                watching.close()  # type: ignore[attr-defined]  # it is a generator
    assert (wrong, late_grpc.heard[heard_before:]) == ([], [])


def test_over_tls_the_coordinator_proves_its_name(tmp_path: Path):
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    tls = ServerTls(ours.coordinator()._replace(ca_file=None))
    with serving_rpc(a_rest_app(), tls) as address:
        with Client(address, TOKEN, tls_files=ours.alone) as client:
            assert client.submit(command=["true"]).task_ids
        with Client(address, TOKEN, tls_files=theirs.alone) as client, pytest.raises(Unavailable):
            client.submit(command=["true"])


def test_over_mutual_tls_a_client_shows_a_certificate(tmp_path: Path):
    ours = Authority(tmp_path)
    with serving_rpc(a_rest_app(), ServerTls(ours.coordinator())) as address:
        with Client(address, TOKEN, tls_files=ours.client()) as client:
            assert client.submit(command=["true"]).task_ids
        with Client(address, TOKEN, tls_files=ours.alone) as client, pytest.raises(Unavailable):
            client.submit(command=["true"])


@pytest.mark.parametrize(
    "program",
    [
        "import phalanx.cli.main",
        "import phalanx.coordinator.main",
        "import phalanx; phalanx.Client('http://127.0.0.1:1', 'x')",
    ],
)
def test_who_does_not_speak_grpc_does_not_load_it(program: str):
    look = "import sys; sys.exit('grpc' in sys.modules or 'google.protobuf' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", f"{program}\n{look}"], check=False).returncode == 0
