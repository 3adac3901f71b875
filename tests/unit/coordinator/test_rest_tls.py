"""REST over TLS as both clients see it: it works, and where it does not they get the reason."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from phalanx.client.async_client import AsyncClient
from phalanx.client.client import Client
from phalanx.coordinator.server import rest_server
from phalanx.errors import BadRequest, PhalanxError, Unavailable
from phalanx.tls import NO_TLS, ServerTls, TlsFiles
from tests.support.certificate_authority import Authority
from tests.support.fake_commands import FakeCommands
from tests.support.rest_app import TOKEN, a_rest_app


@contextmanager
def serving(tls: ServerTls | None) -> Iterator[int]:
    """A small cluster behind our own server; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    app = a_rest_app(FakeCommands(endless=False)).app
    server = rest_server(app, "127.0.0.1", port, None if tls is None else lambda: tls.rest)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    try:
        while not server.started:
            threading.Event().wait(0.005)
        yield port
    finally:
        server.should_exit = True
        thread.join()


def told(address: str, tls_files: TlsFiles) -> PhalanxError:
    """The error of the sync client; the async one has the same."""
    with Client(address, TOKEN, tls_files=tls_files) as client, pytest.raises(PhalanxError) as caught:
        client.cluster()

    async def ask() -> PhalanxError:
        async with AsyncClient(address, TOKEN, tls_files=tls_files) as client:
            with pytest.raises(PhalanxError) as refused:
                await client.cluster()
        return refused.value

    other = asyncio.run(ask())
    assert (type(other), other.detail, other.hint) == (
        type(caught.value),
        caught.value.detail,
        caught.value.hint,
    )
    return caught.value


def test_both_clients_get_through(tmp_path: Path):
    ca = Authority(tmp_path)

    async def ask(address: str) -> int:
        async with AsyncClient(address, TOKEN, tls_files=ca.alone) as client:
            return (await client.cluster()).jobs

    with serving(ServerTls(ca.coordinator())) as port:
        address = f"https://127.0.0.1:{port}"
        with Client(address, TOKEN, tls_files=ca.alone) as client:
            assert client.submit(command=["true"]).task_ids
            assert client.cluster().jobs == 1
        assert asyncio.run(ask(address)) == 1


def test_a_coordinator_of_another_authority_is_not_trusted(tmp_path: Path):
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    with serving(ServerTls(ours.coordinator())) as port:
        error = told(f"https://127.0.0.1:{port}", theirs.alone)
    assert isinstance(error, Unavailable)
    assert error.reason == "Untrusted"
    assert "not from an authority you trust" in error.detail


def test_a_certificate_for_another_name_is_not_trusted(tmp_path: Path):
    ca = Authority(tmp_path)
    with serving(ServerTls(ca.coordinator("c1", "elsewhere.lab"))) as port:
        error = told(f"https://127.0.0.1:{port}", ca.alone)
    assert "for other names" in error.detail


def test_plain_words_to_a_tls_port_are_answered_plainly(tmp_path: Path):
    with serving(ServerTls(Authority(tmp_path).coordinator())) as port:
        error = told(f"http://127.0.0.1:{port}", NO_TLS)
    assert isinstance(error, BadRequest)
    assert error.hint == "write https:// instead"


def test_tls_to_a_plain_port_is_told(tmp_path: Path):
    with serving(None) as port:
        error = told(f"https://127.0.0.1:{port}", Authority(tmp_path).alone)
    assert "does not use TLS" in error.detail
    assert "http://" in error.hint


def test_several_that_cannot_be_trusted_are_told_at_once(tmp_path: Path):
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    with serving(ServerTls(ours.coordinator())) as one, serving(ServerTls(ours.coordinator())) as two:
        addresses = f"https://127.0.0.1:{one},https://127.0.0.1:{two}"
        begun = time.monotonic()
        error = told(addresses, theirs.alone)
    assert time.monotonic() - begun < 5.0
    assert error.reason == "Untrusted"
    assert error.detail.count("not from an authority you trust") == 2
    assert "PHALANX_CA_FILE" in error.hint
