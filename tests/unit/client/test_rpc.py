"""Clients over gRPC: where they connect, their error when nothing answers there, and what TLS is for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.client.client import Client
from phalanx.client.rpc import ThreadedGrpcTransport
from phalanx.errors import BadRequest, NotActive, Unauthorized, Unavailable
from phalanx.tls import ServerTls
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
