"""The server's own limits: a stranger cannot fill its memory, nor hold its connections by saying nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from phalanx.api.protocol import BoundedProtocol
from tests.unit.api.house import TOKEN, a_house
from tests.unit.api.servers import serving

HEAD = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"


class Impatient(BoundedProtocol):
    request_s_max = 0.5


class Crowded(BoundedProtocol):
    connections_max = 1


@contextmanager
def a_line(address: str) -> Iterator[socket.socket]:
    site = urlsplit(address)
    with socket.create_connection((site.hostname, site.port)) as line:
        yield line


def told(line: socket.socket) -> bytes:
    """All that the server says until it hangs up."""
    said = b""
    try:
        while piece := line.recv(65_536):
            said += piece
    except ConnectionResetError:
        pass  # it hung up on what we still had to say
    return said


def said_until(line: socket.socket, words: bytes) -> None:
    """Read until the server has said `words`; it says nothing behind them yet."""
    said = b""
    while words not in said:
        piece = line.recv(65_536)
        assert piece, said
        said += piece


def test_a_head_without_end_is_refused():
    with serving(a_house().app) as address, a_line(address) as line:
        line.sendall(HEAD + b"X: " + b"x" * 60_000)
        line.sendall(b"x" * 10_000)
        said = told(line)
    assert said.startswith(b"HTTP/1.1 413 ")
    assert b"application/problem+json" in said


def test_a_head_in_many_pieces_is_answered():
    with serving(a_house().app) as address, a_line(address) as line:
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
    with serving(a_house().app, Impatient) as address, a_line(address) as line:
        line.sendall(beginning)
        assert told(line).count(b"HTTP/1.1") == beginning.count(b"\r\n\r\nGET")


def test_who_does_not_finish_a_later_request_is_hung_up_on():
    with serving(a_house().app, Impatient) as address, a_line(address) as line:
        line.sendall(HEAD + b"\r\n")
        said_until(line, b'{"status":"ok"}')
        line.sendall(HEAD)
        assert told(line) == b""


def test_a_stream_is_not_hung_up_on():
    house = a_house(beat_s=0.05)
    with serving(house.app, Impatient) as address, a_line(address) as line:
        line.sendall(
            b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %b\r\n\r\n" % TOKEN.encode()
        )
        for _ in range(12):  # longer than the patience for a request
            said_until(line, b"still here")


def test_too_many_connections_are_told_to_come_again():
    with serving(a_house().app, Crowded) as address, a_line(address) as first:
        first.sendall(HEAD + b"\r\n")
        said_until(first, b'{"status":"ok"}')
        with a_line(address) as second:
            said = told(second)
    assert said.startswith(b"HTTP/1.1 429 ")
    assert b"retry-after: 1\r\n" in said


@pytest.mark.parametrize("words", [b"\x16\x03\x01\r\n\r\n", b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_what_is_not_http_gets_a_problem(words: bytes):
    with serving(a_house().app) as address, a_line(address) as line:
        line.sendall(words)
        said = told(line)
    assert said.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in said
