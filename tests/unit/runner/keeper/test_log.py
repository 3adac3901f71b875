"""The keeper's log stays small, whatever tasks do again and again."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.runner.keeper import log, system
from phalanx.runner.keeper.link import NAME, SocketListener


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(system, "since_boot", lambda: now[0])
    monkeypatch.setattr(log, "_next_at", {})
    monkeypatch.setattr(log, "_left_out", {})
    return now


def test_a_kind_is_said_once_a_minute_with_the_number_of_those_left_out(
    now: list[float], capsys: pytest.CaptureFixture[str]
):
    for number in range(5):
        log.write("a", f"first {number}")
        log.write("b", "other")
        now[0] += 1.0
    now[0] += log.EVERY_S
    log.write("a", "again")
    log.write("a", "too soon")
    assert capsys.readouterr().err.splitlines() == [
        "first 0",
        "other",
        "again (and 4 more like it were left out)",
    ]


@pytest.mark.usefixtures("now")
def test_a_thousand_refused_connections_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    listener = SocketListener(str(tmp_path))
    for _ in range(1000):
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(str(tmp_path / NAME))
            assert listener.accept() is None  # every descendant of the keeper is a task
    listener.close()
    os.close(listener._folder)
    (line,) = capsys.readouterr().err.splitlines()
    assert "which is not a runner" in line


WRITE = """
import sys
from phalanx.runner.keeper import log
log.begin(sys.argv[1])
for number in range(5000):
    log.write(str(number), f"{number} " + 1000 * "x")
"""


@pytest.mark.parametrize("planted", [False, True])
def test_a_large_log_becomes_the_one_older_file(tmp_path: Path, planted: bool):
    (tmp_path / log.NAME).write_text("old\n" * log.BYTES_MAX)
    if planted:
        (tmp_path / f"{log.NAME}.1" / "x").mkdir(parents=True)
    subprocess.run([sys.executable, "-c", WRITE, str(tmp_path)], check=True)
    written, older = ((tmp_path / f"{log.NAME}{end}").read_text() for end in ("", log.OLDER))
    assert written.splitlines()[-1].startswith("4999 ")
    assert len(written) + len(older) < 2 * (log.BYTES_MAX + 2000)
    assert "old" not in written + older
