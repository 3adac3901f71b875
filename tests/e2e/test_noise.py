"""Any bytes at any port of a real coordinator: a 4xx or a closed connection, never a 500, never a hang."""

from __future__ import annotations

import random
import socket
import struct
from collections.abc import Iterator

import msgspec
import pytest
import schemathesis
from schemathesis.checks import not_a_server_error

from phalanx.link import wire
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.route_cases import a_document, labels, try_route

ONE_NODE = {"n1": "cpus=2,gpus=1,ram=4GiB"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    with a_real_cluster(tmp_path_factory.mktemp("noise"), ONE_NODE) as cluster:
        yield cluster
        assert cluster.client.cluster().nodes_online == 1, "it still works after all that"


# tests/property/test_rest_fuzz.py goes through the limits of every field, without a socket.
DOCUMENT = a_document(random_only=True)


@pytest.mark.parametrize("route", [label for label in labels() if "events" not in label])
def test_every_route_under_generated_requests(route: str, cluster: RealCluster) -> None:
    headers = {"Authorization": f"Bearer {cluster.user_token}"}

    def check(case: schemathesis.Case) -> None:
        if case.query and "follow" in case.query:
            case.query["follow"] = "false"
        if route.endswith("/wait") or (case.query and "timeout_s" in case.query):
            case.query = {**(case.query or {}), "timeout_s": 0}
        response = case.call(base_url=f"http://127.0.0.1:{cluster.port}", headers=headers, timeout=20)
        case.validate_response(response, checks=[not_a_server_error])
        if response.status_code >= 400:
            assert response.headers["content-type"] == ["application/problem+json"]

    try_route(DOCUMENT, route, check)


@pytest.mark.parametrize("seed", range(40))
def test_noise_on_the_rest_port(cluster: RealCluster, seed: int) -> None:
    chance = random.Random(seed)
    line = chance.choice([b"", b"GET / HTTP/1.1\r\n", b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\n"])
    with socket.create_connection(("127.0.0.1", cluster.port), timeout=10) as connection:
        connection.sendall(line + chance.randbytes(chance.randrange(1, 4000)))
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(65536)
    assert b" 500 " not in answer.split(b"\r\n", 1)[0]


@pytest.mark.parametrize("seed", range(40))
def test_noise_on_the_runners_port(cluster: RealCluster, seed: int) -> None:
    chance = random.Random(seed)
    body = chance.choice(
        [
            chance.randbytes(chance.randrange(200)),
            msgspec.msgpack.encode({"type": "hello", "version": 1}),
            msgspec.msgpack.encode({"type": "beat", "epoch": 1, "sent_at": 0.0, "held": []}),
            msgspec.msgpack.encode({"type": "reports", "epoch": -1, "reports": []}),
        ]
    )
    length = chance.choice([len(body), 2**31, 0, len(body) + 7])
    with socket.create_connection(("127.0.0.1", cluster.link_port), timeout=15) as connection:
        connection.sendall(struct.pack(">I", length) + body)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    (told,) = wire.Unpacker().feed(answer)
    assert isinstance(told, wire.Rejected)
