"""Keys that leave a session, and pairs of ports."""

from __future__ import annotations

import pytest

from phalanx.cli.port_forward import PortPair, read_pair
from phalanx.cli.terminal import Detached, KeyScanner, read_keys
from phalanx.errors import BadRequest


def scanned(keys: str, *typed: bytes) -> bytes:
    scanner = KeyScanner(keys)
    return b"".join(scanner.scan(each) for each in typed)


def test_what_is_typed_goes_through():
    assert scanned("ctrl-]", b"ls\r", b"\x03") == b"ls\r\x03"
    assert scanned("", b"\x1d") == b"\x1d"


def test_the_keys_leave_also_when_typed_one_by_one():
    with pytest.raises(Detached):
        scanned("ctrl-]", b"abc\x1d")
    with pytest.raises(Detached):
        scanned("ctrl-p,ctrl-q", b"\x10", b"\x11")
    with pytest.raises(Detached):
        scanned("ctrl-p,ctrl-q", b"\x10\x10\x11")


def test_a_beginning_that_was_none_is_sent_after_all():
    assert scanned("ctrl-p,ctrl-q", b"\x10", b"x") == b"\x10x"
    assert scanned("ctrl-p,ctrl-q", b"\x10\x10x") == b"\x10\x10x"


@pytest.mark.parametrize(
    ("text", "keys"),
    [("ctrl-]", b"\x1d"), ("ctrl-p,ctrl-q", b"\x10\x11"), ("~,.", b"~."), ("CTRL-A", b"\x01"), ("", b"")],
)
def test_keys_are_read(text: str, keys: bytes):
    assert read_keys(text) == keys


@pytest.mark.parametrize("text", ["ctrl-", "ctrl-1", "esc", "ctrl-ä", "ctrl-p,,ctrl"])
def test_what_is_no_key_is_named(text: str):
    with pytest.raises(BadRequest, match="detach-keys"):
        read_keys(text)


def test_ports_are_read():
    assert read_pair("8888") == PortPair(8888, 8888)
    assert read_pair("0:80") == PortPair(0, 80)
