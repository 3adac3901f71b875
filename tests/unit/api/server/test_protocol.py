"""The server's own limits: a stranger cannot fill its memory, nor hold its connections by sending nothing."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import cast
from urllib.parse import urlsplit

import pytest

from phalanx.api.server.protocol import BoundedProtocol, Lingering
from tests.support.http_servers import serving
from tests.support.rest_app import TOKEN, a_rest_app

HEAD = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
KNOWN = b"GET /v1/cluster HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %b\r\n" % TOKEN.encode()


class Impatient(BoundedProtocol):
    request_s_max = 0.5


class FullCluster(BoundedProtocol):
    unauthenticated_max = 3
    known_max = 8


class Hasty(BoundedProtocol):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.timeout_keep_alive = 1
        super().connection_made(transport)


class Unread(BoundedProtocol):
    stall_s_max = 0.2
    ended = threading.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.ended.set()


@contextmanager
def a_line(address: str) -> Iterator[socket.socket]:
    site = urlsplit(address)
    with socket.create_connection((site.hostname, site.port)) as line:
        yield line


def told(line: socket.socket) -> bytes:
    """Everything that the server sends until it closes."""
    said = b""
    try:
        while piece := line.recv(65_536):
            said += piece
    except ConnectionResetError:
        pass  # it closed before we had sent everything
    return said


def said_until(line: socket.socket, words: bytes) -> None:
    """Read until the server has sent `words`; nothing follows them yet."""
    said = b""
    while words not in said:
        piece = line.recv(65_536)
        assert piece, said
        said += piece


def test_a_head_without_end_is_refused():
    with serving(a_rest_app().app) as address, a_line(address) as line:
        line.sendall(HEAD + b"X: " + b"x" * 60_000)
        line.sendall(b"x" * 10_000)
        said = told(line)
    assert said.startswith(b"HTTP/1.1 413 ")
    assert b"application/problem+json" in said


def test_a_head_in_many_pieces_is_answered():
    with serving(a_rest_app().app) as address, a_line(address) as line:
        for byte in HEAD:
            line.send(bytes([byte]))
        line.sendall(b"Connection: close\r\n\r\n")
        assert told(line).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(
    "beginning",
    [
        b"",
        HEAD,
        b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %b\r\n"
        b"Content-Type: application/json\r\nContent-Length: 10\r\n\r\n{" % TOKEN.encode(),
        HEAD + b"\r\n" + HEAD,
    ],
    ids=["nothing", "half a head", "half a body", "one request and a half"],
)
def test_who_does_not_finish_a_request_is_hung_up_on(beginning: bytes):
    with serving(a_rest_app().app, Impatient) as address, a_line(address) as line:
        line.sendall(beginning)
        assert told(line).count(b"HTTP/1.1") == beginning.count(b"\r\n\r\nGET")


def test_who_does_not_finish_a_later_request_is_hung_up_on():
    with serving(a_rest_app().app, Impatient) as address, a_line(address) as line:
        line.sendall(HEAD + b"\r\n")
        said_until(line, b'{"status":"ok"}')
        line.sendall(HEAD)
        assert told(line) == b""


def test_a_stream_is_not_hung_up_on():
    house = a_rest_app(beat_s=0.05)
    with serving(house.app, Impatient) as address, a_line(address) as line:
        line.sendall(
            b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %b\r\n\r\n" % TOKEN.encode()
        )
        for _ in range(12):  # longer than the patience for a request
            said_until(line, b"still here")


def test_half_requests_give_way_to_newcomers_the_oldest_first():
    with serving(a_rest_app().app, FullCluster) as address, ExitStack() as held:
        halves = [held.enter_context(a_line(address)) for _ in range(9)]
        for line in halves:
            line.sendall(HEAD)
        for _ in range(3):
            with a_line(address) as line:
                line.sendall(KNOWN + b"Connection: close\r\n\r\n")
                assert told(line).startswith(b"HTTP/1.1 200 ")
        said = told(halves[0])
        assert said.startswith(b"HTTP/1.1 429 ") and b"retry-after: 1\r\n" in said


def test_who_is_known_does_not_give_way():
    with serving(a_rest_app().app, FullCluster) as address, ExitStack() as held:
        known = held.enter_context(a_line(address))
        known.sendall(KNOWN + b"\r\n")
        said_until(known, b'"nodes":')
        for _ in range(9):
            held.enter_context(a_line(address)).sendall(HEAD)
        with a_line(address) as last:  # by then the server has seen all before
            last.sendall(HEAD + b"Connection: close\r\n\r\n")
            assert told(last).startswith(b"HTTP/1.1 200 ")
        known.sendall(KNOWN + b"\r\n")
        said_until(known, b'"nodes":')


def test_one_user_has_a_part_of_the_connections():
    with serving(a_rest_app().app, FullCluster) as address, ExitStack() as held:
        for _ in range(3):  # a quarter of eight, and one more for an admin
            line = held.enter_context(a_line(address))
            line.sendall(KNOWN + b"\r\n")
            said_until(line, b'"nodes":')
        with a_line(address) as line:
            line.sendall(KNOWN + b"Connection: close\r\n\r\n")
            said = told(line)
    assert said.startswith(b"HTTP/1.1 429 ")
    assert b"user ada has 2 of the 8 connections, as many as one user may" in said


def test_a_long_head_is_answered_though_all_of_it_is_sent():
    with serving(a_rest_app().app) as address, a_line(address) as line:
        line.sendall(HEAD + b"X: " + b"x" * 5_000_000 + b"\r\n\r\n")
        assert told(line).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("head", [KNOWN, HEAD], ids=["a user", "a stranger"])
def test_a_long_body_is_answered_though_all_of_it_is_sent(head: bytes):
    size = 50_000_000
    head = head.replace(b"GET /v1/cluster", b"POST /v1/jobs").replace(b"GET /livez", b"POST /v1/jobs")
    with serving(a_rest_app().app, Hasty) as address, a_line(address) as line:
        line.sendall(head + b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % size)
        line.sendall(b"x" * size)
        said = told(line)
    assert said.startswith(b"HTTP/1.1 413 " if b"Authorization" in head else b"HTTP/1.1 401 ")


def test_thousands_of_requests_in_one_go_are_all_answered():
    with serving(a_rest_app().app) as address, a_line(address) as line:
        sending = threading.Thread(
            target=line.sendall, args=((HEAD + b"\r\n") * 19_999 + HEAD + b"Connection: close\r\n\r\n",)
        )
        sending.start()
        answers = told(line)
        sending.join()
    assert answers.count(b"HTTP/1.1 200 ") == 20_000


def test_a_reader_who_takes_nothing_is_hung_up_on():
    with serving(a_rest_app().app, Unread) as address, a_line(address) as line:
        line.sendall((KNOWN.replace(b"/v1/cluster", b"/openapi.json") + b"\r\n") * 400)
        assert Unread.ended.wait(20)
        assert told(line).count(b"HTTP/1.1 200 ") < 400


@pytest.mark.parametrize("words", [b"\x16\x03\x01\r\n\r\n", b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_what_is_not_http_gets_a_problem(words: bytes):
    with serving(a_rest_app().app) as address, a_line(address) as line:
        line.sendall(words)
        said = told(line)
    assert said.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in said


class Raw:
    """A connection that keeps what is written to it, write by write."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        self.written.append(b"closed")


class Idle:
    """A protocol between two requests."""

    is_lingering = is_receiving = False

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()


async def a_written_answer() -> list[bytes]:
    lingering = Lingering(cast(asyncio.Transport, raw := Raw()), cast(BoundedProtocol, Idle()))
    lingering.write(b"HTTP/1.1 200 OK\r\n\r\n")
    lingering.write(b"body")
    lingering.write(b"more")
    lingering.write(b"HTTP/1.1 204 No Content\r\n\r\n")
    lingering.close()
    return raw.written


def test_the_head_of_an_answer_leaves_with_its_body_and_before_anything_else():
    written = asyncio.run(a_written_answer())
    assert written == [b"HTTP/1.1 200 OK\r\n\r\nbody", b"more", b"HTTP/1.1 204 No Content\r\n\r\n", b"closed"]


async def a_late_body() -> list[bytes]:
    lingering = Lingering(cast(asyncio.Transport, raw := Raw()), cast(BoundedProtocol, Idle()))
    lingering.write(b"HTTP/1.1 200 OK\r\n\r\n")
    turned = asyncio.Event()
    asyncio.get_running_loop().call_soon(turned.set)
    await turned.wait()
    early = [*raw.written]
    lingering.write(b"body")
    return [*early, b"then", *raw.written]


def test_a_head_whose_body_comes_later_does_not_wait_for_it():
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    assert asyncio.run(a_late_body()) == [head, b"then", head, b"body"]
