"""What a daemon logs when it cannot start: what is wrong, and what to do."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from phalanx.errors import TokenError
from phalanx.logger import logger, told


def test_an_error_that_knows_what_to_do_says_it():
    assert told(TokenError("others may use t", hint="chmod 600 t")) == {
        "error": "others may use t",
        "hint": "chmod 600 t",
    }


def test_an_error_that_does_not_know_says_what_is_wrong():
    assert told(OSError("the disk is full")) == {"error": "the disk is full"}


@pytest.mark.parametrize(
    ("words", "setting"),
    [
        (["runner", "--join", "127.0.0.1:1"], "PHALANX_RUNNER_TOKEN_FILE"),
        (["coordinator", "--store", "memory:"], "PHALANX_COORDINATOR_TOKEN_FILE"),
    ],
)
def test_a_daemon_that_others_may_read_the_token_of_tells_how_to_close_the_file(
    tmp_path: Path, words: list[str], setting: str
):
    path = tmp_path / "token"
    path.write_text("phx_open")
    path.chmod(0o646)
    ended = subprocess.run(
        [sys.executable, "-m", "phalanx", *words, "--state", str(tmp_path / "state")],
        check=False,
        env=os.environ | {setting: str(path)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert ended.returncode == 1
    assert f"others may use {path} (-rw-r--rw-)" in ended.stderr
    assert f"chmod 600 {path}" in ended.stderr


def test_what_a_node_says_begins_no_line_of_its_own_in_a_log(caplog: pytest.LogCaptureFixture):
    logging.getLogger("phalanx").propagate = True
    logger("coordinator").warning("n1 is excluded for m\n2026-11-16 INFO forged \x1b[2J", why="a\nb")
    assert [record.getMessage() for record in caplog.records] == [
        "n1 is excluded for m\\n2026-11-16 INFO forged \\x1b[2J why='a\\nb'"
    ]
