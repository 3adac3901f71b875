"""What `phalanx run` reads for its task: by offset, not far ahead, and again from the beginning while it can."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path

import pytest

from phalanx.cli.run_input import KEPT_BYTES, PIECE_BYTES, FileInput, InputLost, PipeInput, standard_input


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)


def never() -> bool:
    return False


def write_all(fd: int, data: bytes) -> threading.Thread:
    def write() -> None:
        with os.fdopen(fd, "wb") as into:
            into.write(data)

    writing = threading.Thread(target=write)
    writing.start()
    return writing


def read_all(source: FileInput | PipeInput) -> bytes:
    found = b""
    while piece := source.read(len(found), never):
        found += piece
    return found


def test_a_pipe_is_read_once_more_from_its_beginning(pipe: tuple[int, int]):
    data = os.urandom(KEPT_BYTES)
    writing, source = write_all(pipe[1], data), PipeInput(pipe[0])
    assert read_all(source) == data
    assert read_all(source) == data
    writing.join()


def test_of_a_longer_one_only_what_may_be_on_its_way_is_kept(pipe: tuple[int, int]):
    data = os.urandom(3 * KEPT_BYTES)
    writing, source = write_all(pipe[1], data), PipeInput(pipe[0])
    assert read_all(source) == data
    at = len(data) - 256 * 1024  # a window of a session
    assert source.read(at, never) == data[at : at + PIECE_BYTES]
    assert len(source._kept) <= KEPT_BYTES
    with pytest.raises(InputLost):
        source.read(0, never)
    writing.join()


def test_a_pipe_is_not_read_far_ahead(pipe: tuple[int, int]):
    writing, source = write_all(pipe[1], bytes(1 << 20)), PipeInput(pipe[0])
    assert source.read(0, never)
    assert len(source._kept) <= 3 * PIECE_BYTES
    assert writing.is_alive()
    assert len(read_all(source)) == 1 << 20
    writing.join()


def test_who_waits_for_a_pipe_is_woken_when_it_is_over(pipe: tuple[int, int]):
    source, over, found = PipeInput(pipe[0]), threading.Event(), []
    waiting = threading.Thread(target=lambda: found.append(source.read(0, over.is_set)))
    waiting.start()
    over.set()
    source.wake()
    waiting.join(10)
    assert found == [None]
    os.close(pipe[1])


def test_a_file_is_read_again_and_left_where_it_was_read_to(tmp_path: Path):
    path = tmp_path / "file"
    path.write_bytes(b"skipped" + bytes(200_000))
    with path.open("rb") as file:
        os.lseek(file.fileno(), 7, os.SEEK_SET)
        source = FileInput(file.fileno())
        assert read_all(source) == read_all(source) == bytes(200_000)
        assert os.lseek(file.fileno(), 0, os.SEEK_CUR) == 200_007


def given_as_stdin(monkeypatch: pytest.MonkeyPatch, fd: int, wanted: bool | None) -> str:
    with os.fdopen(os.dup(fd), "r") as stream:
        assert isinstance(stream, TextIOWrapper)
        monkeypatch.setattr("sys.stdin", stream)
        return type(standard_input(wanted)).__name__


def test_what_standard_input_is_taken_for(
    monkeypatch: pytest.MonkeyPatch, pipe: tuple[int, int], tmp_path: Path
):
    (tmp_path / "file").touch()
    master, terminal = os.openpty()
    null, file = os.open(os.devnull, os.O_RDONLY), os.open(tmp_path / "file", os.O_RDONLY)
    for fd, wanted, found in (
        *((pipe[0], None, "PipeInput"), (pipe[0], True, "PipeInput"), (pipe[0], False, "NoneType")),
        *((file, None, "FileInput"), (null, None, "NoneType"), (null, True, "NoneType")),
        *((terminal, None, "NoneType"), (terminal, True, "PipeInput"), (terminal, False, "NoneType")),
    ):
        assert given_as_stdin(monkeypatch, fd, wanted) == found
    monkeypatch.setattr("sys.stdin", None)  # closed when Python started
    assert standard_input(None) is None
    for fd in (master, terminal, null, file, pipe[1]):
        os.close(fd)
