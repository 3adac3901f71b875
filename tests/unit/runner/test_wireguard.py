"""The key of a node: made once, in a file that only root reads; and what a node says that cannot encrypt."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

from phalanx.core.model.resources import Capacity
from phalanx.runner import wireguard
from phalanx.runner.wireguard import KEY_FILE, NO_WIREGUARD, WireGuard

with_tools = pytest.mark.skipif(bool(wireguard.why_not()), reason=f"no WireGuard: {wireguard.why_not()}")


@with_tools
def test_a_node_keeps_its_key_and_makes_another_if_the_file_is_gone(tmp_path: Path):
    first = WireGuard.found(tmp_path).public
    path = tmp_path / KEY_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert WireGuard.found(tmp_path).public == first
    assert Capacity(1, 1, wireguard=first).wireguard == first
    path.unlink()
    assert WireGuard.found(tmp_path).public != first
    assert first not in path.read_text(), "the file has the private key"


@with_tools
def test_a_file_that_holds_no_key_is_replaced(tmp_path: Path):
    (tmp_path / KEY_FILE).write_text("not a key")
    assert len(WireGuard.found(tmp_path).public) == wireguard.KEY_CHARACTERS


def test_a_node_without_the_programs_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(shutil, "which", lambda name, **_: None)
    with pytest.raises(OSError, match="no program wg: install wireguard-tools"):
        WireGuard.found(tmp_path)
    monkeypatch.setattr(shutil, "which", lambda name, **_: "/usr/bin/wg" if name == "wg" else None)
    monkeypatch.setattr(wireguard, "_in_kernel", lambda: False)
    assert wireguard.why_not() == NO_WIREGUARD
    assert not (tmp_path / KEY_FILE).exists()


def test_what_is_no_key_is_refused_with_the_capacity():
    with pytest.raises(ValueError, match="wireguard: 'x' is not a public key"):
        Capacity(1, 1, wireguard="x")
