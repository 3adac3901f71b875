"""The TLS acceptor: which clients are accepted, which are refused, and how soon."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from phalanx.coordinator import acceptor
from phalanx.coordinator.acceptor import Acceptor
from phalanx.tls import ServerTls, client_context, peer_node
from tests.support.certificate_authority import Authority

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Echo(asyncio.Protocol):
    """Sends the caller's node and echoes what it receives."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(f"{peer_node(transport.get_extra_info('ssl_object'))}\n".encode())

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


@asynccontextmanager
async def a_port(tls: ServerTls, unauthenticated: int = acceptor.HANDSHAKES_MAX) -> AsyncIterator[int]:
    opened = await Acceptor.open("127.0.0.1", 0, lambda: tls.link, Echo, b"use TLS\n", unauthenticated)
    try:
        yield opened.sockets[0].getsockname()[1]
    finally:
        opened.close()
        await opened.wait_closed()


async def first_line(port: int, context: ssl.SSLContext | None, say: bytes = b"") -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        writer.write(say)
        async with asyncio.timeout(5):
            return await reader.readline()
    finally:
        writer.close()


async def test_a_node_is_let_in_with_its_name(tmp_path: Path):
    ca = Authority(tmp_path)
    async with a_port(ServerTls(ca.coordinator())) as port:
        assert await first_line(port, client_context(ca.node("n1"))) == b"n1\n"


async def test_whoever_does_not_speak_tls_is_told_so(tmp_path: Path):
    async with a_port(ServerTls(Authority(tmp_path).coordinator())) as port:
        assert await first_line(port, None, b"GET / HTTP/1.1\r\n\r\n") == b"use TLS\n"


async def test_whoever_shows_no_certificate_hears_nothing(tmp_path: Path):
    ca = Authority(tmp_path)
    async with a_port(ServerTls(ca.coordinator())) as port:
        heard = b""
        with suppress(ssl.SSLError, ConnectionError):  # how much of the refusal arrives depends on the kernel
            heard = await first_line(port, client_context(ca.alone))
        assert heard == b""


@pytest.mark.parametrize("words", [b"", b"\x16\x03\x01"], ids=["silent", "half a handshake"])
async def test_whoever_is_slow_is_sent_away(tmp_path: Path, monkeypatch, words: bytes):
    monkeypatch.setattr(acceptor, "FIRST_WORD_WITHIN_S", 0.1)
    monkeypatch.setattr(acceptor, "HANDSHAKE_WITHIN_S", 0.1)
    async with a_port(ServerTls(Authority(tmp_path).coordinator())) as port:
        assert await first_line(port, None, words) == b""


async def test_a_crowd_of_silent_strangers_keeps_nobody_out(tmp_path: Path):
    ca = Authority(tmp_path)
    async with a_port(ServerTls(ca.coordinator()), unauthenticated=2) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        for _, writer in silent[10:]:
            writer.write(b"\x16\x03\x01")  # half a handshake
        assert await first_line(port, client_context(ca.node("n1"))) == b"n1\n"
        async with asyncio.timeout(5):  # long before its time for a handshake is over
            assert await silent[0][0].read() == b""  # the oldest was closed
        for _, writer in silent:
            writer.close()


async def test_a_port_without_tls_lets_in_at_once():
    opened = await Acceptor.open("127.0.0.1", 0, None, Echo)
    port = opened.sockets[0].getsockname()[1]
    assert await first_line(port, None) == b"None\n"
    opened.close()
    await opened.wait_closed()


async def test_a_renewed_certificate_is_shown_to_the_next(tmp_path: Path):
    ca = Authority(tmp_path)
    tls = ServerTls(ca.coordinator("c1", "localhost"))
    async with a_port(tls) as port:
        with pytest.raises(ssl.SSLCertVerificationError):
            await first_line(port, client_context(ca.node("n1")))
        ca.coordinator("c1", "127.0.0.1")
        assert tls.reload()
        assert await first_line(port, client_context(ca.node("n1"))) == b"n1\n"
