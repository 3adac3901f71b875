"""What `phalanx run` reads for its task: by offset, not far ahead, and again from the beginning while it can."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import Self, cast

import pytest

from phalanx.api.schema.jobs import TaskView
from phalanx.cli import run_input as module
from phalanx.cli.run_input import (
    KEPT_BYTES,
    PIECE_BYTES,
    FileInput,
    InputLost,
    PipeInput,
    TaskInput,
    standard_input,
)
from phalanx.client.client import Client
from phalanx.errors import Conflict, PhalanxError, TooMany, Unavailable
from tests.support.fake_client import a_task
from tests.support.waiting import wait_until


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
    assert source._reader is not None
    source._reader.join(10)  # else it may read what the next test writes into a pipe of the same number


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


class FakeSession:
    """Takes all that it is given, from a byte on."""

    is_over = False

    def __init__(self, client: FakeInputClient, at: int) -> None:
        self._client, self._at = client, at

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def when_over(self, call: Callable[[], None]) -> None:
        pass

    def input_at(self) -> int:
        return self._at

    def write(self, piece: bytes) -> None:
        self._client.given[-1] += piece

    def end_input(self) -> None:
        self._client.given[-1] += b"$"

    def wait(self) -> int:
        return 0


class FakeInputClient:
    """Answers the requests for sessions one after another: an error, or the byte from which on input is wanted."""

    def __init__(self, *answers: int | PhalanxError) -> None:
        self.answers = list(answers)
        self.given: list[bytes] = []
        self.cancelled: list[str] = []
        self.seen = a_task(status="Running", attempt=1)

    def stdin_session(self, task: str, attempt: int) -> FakeSession:
        answer = self.answers.pop(0)
        if isinstance(answer, PhalanxError):
            raise answer
        self.given.append(b"")
        return FakeSession(self, answer)

    def task(self, id: str) -> TaskView:
        return self.seen

    def cancel(self, id: str) -> None:
        self.cancelled.append(id)


def feed(client: FakeInputClient, path: Path) -> TaskInput:
    path.write_bytes(b"input")
    return TaskInput(cast(Client, client), "17", "17.0", FileInput(os.open(path, os.O_RDONLY)))


def test_an_attempt_that_is_about_to_start_and_a_full_node_are_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "PAUSE_MAX_S", 0.0)
    not_yet = Conflict("it is Assigned", reason="TaskNotRunning")
    client = FakeInputClient(not_yet, TooMany("full"), Unavailable("cut", reason="SessionCut"), 2, 0)
    given = feed(client, tmp_path / "file")
    given.begun(1)
    wait_until(lambda: client.given == [b"put$"], 10.0, "the rest was given")
    given.begun(2)
    wait_until(lambda: client.given == [b"put$", b"input$"], 10.0, "another attempt has all of it")
    assert client.cancelled == []


@pytest.mark.parametrize("reason", ["TaskEnded", "AttemptEnded", "TaskNotRunning"])
def test_an_attempt_that_is_over_needs_no_input(tmp_path: Path, reason: str):
    client = FakeInputClient(Conflict("it is over", reason=reason), 0)
    client.seen = a_task(status="Pending", attempt=2)
    given = feed(client, tmp_path / "file")
    given.begun(1)
    wait_until(lambda: len(client.answers) == 1, 10.0, "it was asked for")
    given.begun(2)
    wait_until(lambda: client.given == [b"input$"], 10.0, "the next one has it")


@pytest.mark.parametrize(
    "error",
    [
        Conflict("killed within a write", reason="InputUncertain"),
        Conflict("an older runner", reason="InputNotServed"),
        Unavailable("another program", reason="SessionsNotServed"),
    ],
)
def test_a_job_that_cannot_have_its_input_is_cancelled(
    tmp_path: Path, error: PhalanxError, capsys: pytest.CaptureFixture[str]
):
    client = FakeInputClient(error)
    feed(client, tmp_path / "file").begun(1)
    wait_until(lambda: client.cancelled == ["17"], 10.0, "it is cancelled")
    assert f"17: attempt 1 cannot have its input: {error.detail}" in capsys.readouterr().err
