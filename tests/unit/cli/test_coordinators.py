"""`phalanx status` with several coordinators: each is asked separately, and one that hangs delays no other (M12)."""

from __future__ import annotations

import socket
import time
from pathlib import Path

import pytest

from phalanx.cli import coordinators
from tests.support.fake_client import Cli, FakeClient


def test_one_that_hangs_is_named_after_a_short_while(
    cli: Cli, cluster: FakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(coordinators, "ANSWER_S", 0.5)
    token = tmp_path / "token"
    token.write_text("phx_x")
    token.chmod(0o600)
    with (
        socket.create_server(("127.0.0.1", 0)) as first,  # they accept connections and send nothing
        socket.create_server(("127.0.0.1", 0)) as second,
        socket.create_server(("127.0.0.1", 0)) as gone,
    ):
        hung = [f"http://127.0.0.1:{each.getsockname()[1]}" for each in (first, second)]
        dead = f"http://127.0.0.1:{gone.getsockname()[1]}"
        gone.close()
        began = time.monotonic()
        said = cli("--address", ",".join([*hung, dead]), "--token-file", str(token), "status")
    assert time.monotonic() - began < 10.0  # each alone would have had 30 s
    assert said.code == 0
    for address in hung:
        assert f"{address}: no answer within 0.5 s" in said.out
    assert f"{dead}: cannot reach {dead}" in said.out
