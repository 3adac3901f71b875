"""Output of attempts: from a pipe into a log."""

from __future__ import annotations

import os
from pathlib import Path

from phalanx.runner.keeper.output import LogWriter


def test_a_log_says_what_is_missing_when_it_can_be_written_again(tmp_path: Path):
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    path, log = tmp_path / "folder" / "log", LogWriter()

    def write(text: bytes) -> int | None:
        os.write(writer, text)
        return log.take(reader, str(path))

    assert [write(b"one\n"), write(b"two\n")] == [4, 4]  # there is no such folder
    path.parent.mkdir()
    assert [write(b"three\n"), write(b"four\n")] == [6, 5]
    missing = b"\n[phalanx: 8 bytes of output are missing here: No such file or directory]\n"
    assert path.read_bytes() == missing + b"three\nfour\n"
    os.close(writer)
    assert log.take(reader, str(path)) == 0
    os.close(reader)


def test_nothing_else_is_written_to_in_the_place_of_a_log(tmp_path: Path):
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "fifo")
    reader, writer = os.pipe()
    log = LogWriter()
    for name in ("link", "fifo"):
        os.write(writer, b"text")
        assert log.take(reader, str(tmp_path / name)) == 4
    assert (tmp_path / "secret").read_bytes() == b"secret"
    os.close(reader)
    os.close(writer)
