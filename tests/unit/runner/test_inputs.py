"""Standard input of attempts: what a client sends reaches the pipe once and in order, whoever is restarted."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from phalanx.api.schema.session_frames import FROM_TASK, PIECE_BYTES, FrameKind, pack_frame, read_frame
from phalanx.core.model.orders import AttemptKey
from phalanx.duplex import Duplex
from phalanx.errors import Conflict
from phalanx.runner import inputs as module
from phalanx.runner.inputs import AttemptInputs, InputCount
from phalanx.runner.keeper_messages import ProcessInput
from tests.support.waiting import until

pytestmark = pytest.mark.anyio
KEY: AttemptKey = ("01jcm3k8t0z9x5v7b2n4d6f8gh", 0, 1)


class Task:
    """A task and its keeper: the pipe, held open until the runner has it closed."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.where = ProcessInput("key", os.getpid(), self.writer, os.fstat(self.writer).st_ino)
        self.stopped: list[AttemptKey] = []

    def close_input(self, _: AttemptKey) -> None:
        if self.writer >= 0:
            os.close(self.writer)
        self.writer = -1

    def read(self) -> bytes | None:
        """What is there; empty at the end, None where nothing is there yet."""
        try:
            return os.read(self.reader, 1 << 20)
        except BlockingIOError:
            return None

    def close(self) -> None:
        for fd in (self.reader, self.writer):
            if fd >= 0:
                os.close(fd)


@pytest.fixture
def task() -> Iterator[Task]:
    made = Task()
    yield made
    made.close()


class Rig:
    """The inputs of a runner, and clients of them."""

    def __init__(self, folder: Path, task: Task) -> None:
        self.folder, self.task = folder, task
        self.ends: list[Duplex] = []
        self.serving: list[asyncio.Task[None]] = []
        self.restart()

    def restart(self) -> None:
        self.inputs = AttemptInputs(self.folder, self.task.close_input, self.task.stopped.append)
        self.inputs.opened(KEY, self.task.where)

    async def client(self) -> tuple[Duplex, asyncio.Task[None]]:
        loop, (here, there) = asyncio.get_running_loop(), socket.socketpair()
        _, mine = await loop.create_connection(Duplex, sock=here)
        _, runners = await loop.create_connection(Duplex, sock=there)
        self.ends += [mine, runners]
        self.serving.append(asyncio.ensure_future(self.inputs.serve(KEY, runners)))
        return mine, self.serving[-1]

    def written(self) -> int:
        count = InputCount(self.folder / f"{KEY[0]}.0.1")
        count.close()
        return count.written


@pytest.fixture
async def rig(tmp_path: Path, task: Task) -> AsyncIterator[Rig]:
    made = Rig(tmp_path / "inputs", task)
    yield made
    made.inputs.ended(KEY)
    await asyncio.gather(*made.serving, return_exceptions=True)
    for end in made.ends:
        end.abort()
        await end.lost


async def begun_at(client: Duplex) -> int:
    kind, content = await read_frame(client, FROM_TASK)
    assert kind is FrameKind.STARTED
    return int.from_bytes(content, "big")


async def last_frame(client: Duplex) -> FrameKind:
    while True:
        kind, _ = await read_frame(client, FROM_TASK)
        if kind is not FrameKind.WINDOW:
            return kind


async def test_all_of_it_arrives_and_then_its_end(rig: Rig, task: Task):
    client, serving = await rig.client()
    assert await begun_at(client) == 0
    client.put(pack_frame(FrameKind.STDIN, b"in\n") + pack_frame(FrameKind.STDIN_END))
    assert await last_frame(client) is FrameKind.EXIT
    await serving
    assert (task.read(), task.read()) == (b"in\n", b"")
    again, _ = await rig.client()  # the answer may have been lost
    assert (await begun_at(again), await last_frame(again)) == (3, FrameKind.EXIT)


async def test_a_task_that_reads_nothing_holds_its_client_up(rig: Rig, task: Task):
    client, serving = await rig.client()
    await begun_at(client)
    pieces = [bytes([number]) * PIECE_BYTES for number in range(8)]
    for piece in pieces:
        client.put(pack_frame(FrameKind.STDIN, piece))
    await until(lambda: rig.written() == 1 << 16)  # the pipe is full
    assert not serving.done()
    received = b""

    def all_came() -> bool:
        nonlocal received
        received += task.read() or b""
        return len(received) == 8 * PIECE_BYTES

    await until(all_came)
    assert received == b"".join(pieces)


async def test_a_client_that_comes_back_goes_on_where_the_task_is(rig: Rig, task: Task):
    client, serving = await rig.client()
    await begun_at(client)
    client.put(pack_frame(FrameKind.STDIN, b"one"))
    await until(lambda: task.read() == b"one")
    client.abort()
    with pytest.raises(EOFError):
        await serving
    rig.inputs.sweep()
    rig.restart()  # of the runner: the keeper lists the attempt
    client, _ = await rig.client()
    assert await begun_at(client) == 3
    client.put(pack_frame(FrameKind.STDIN, b"two") + pack_frame(FrameKind.STDIN_END))
    assert await last_frame(client) is FrameKind.EXIT
    assert (task.read(), task.read()) == (b"two", b"")


async def test_a_runner_that_was_killed_within_a_write_does_not_guess(rig: Rig):
    rig.folder.mkdir()
    count = InputCount(rig.folder / f"{KEY[0]}.0.1")
    count.begin(10)
    count.close()
    _, serving = await rig.client()
    with pytest.raises(Conflict) as refused:
        await serving
    assert refused.value.reason == "InputUncertain"


async def test_an_end_of_which_the_keeper_has_not_heard_is_told_again(rig: Rig, task: Task):
    rig.folder.mkdir()
    count = InputCount(rig.folder / f"{KEY[0]}.0.1")
    count.end()
    count.close()
    client, _ = await rig.client()
    assert (await begun_at(client), await last_frame(client)) == (0, FrameKind.EXIT)
    assert task.read() == b""


async def test_a_newer_client_replaces_an_older_one(rig: Rig, task: Task):
    first, serving = await rig.client()
    await begun_at(first)
    for number in range(8):
        first.put(pack_frame(FrameKind.STDIN, bytes([number]) * PIECE_BYTES))
    await until(lambda: rig.written() == 1 << 16)
    second, _ = await rig.client()
    received = task.read() or b""  # now the first could write on
    begun = await begun_at(second)
    with pytest.raises(Conflict):
        await serving
    received += task.read() or b""
    assert begun == rig.written() == len(received)
    second.put(pack_frame(FrameKind.STDIN, b"second"))
    await until(lambda: task.read() == b"second")


async def test_a_task_that_closed_its_input_ends_the_session(rig: Rig, task: Task):
    client, serving = await rig.client()
    await begun_at(client)
    os.close(task.reader)
    task.reader = -1
    client.put(pack_frame(FrameKind.STDIN, b"unread"))
    assert await last_frame(client) is FrameKind.EXIT
    await serving


async def test_a_client_that_left_ends_the_input_and_one_that_was_cut_off_is_waited_for(
    rig: Rig, task: Task, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "LEFT_S", 0.0)
    client, serving = await rig.client()
    await begun_at(client)
    client.abort()
    with pytest.raises(EOFError):
        await serving
    assert task.read() is None
    client, serving = await rig.client()
    await begun_at(client)
    client.put(pack_frame(FrameKind.HANG_UP))
    await serving
    await until(lambda: task.read() == b"")
    assert task.stopped == []


async def test_an_attempt_to_which_nobody_came_is_stopped(
    tmp_path: Path, task: Task, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "FIRST_S", 0.0)
    rig = Rig(tmp_path, task)
    await until(lambda: task.stopped == [KEY])
    assert task.read() is None
    rig.inputs.ended(KEY)


async def test_a_descriptor_that_is_another_pipe_by_now_is_not_written(rig: Rig, task: Task):
    other, rig.task.where = os.pipe(), ProcessInput("key", os.getpid(), task.writer, task.where.inode + 1)
    rig.inputs.ended(KEY)
    rig.restart()
    _, serving = await rig.client()
    with pytest.raises(Conflict) as refused:
        await serving
    assert refused.value.reason == "TaskEnded"
    for fd in other:
        os.close(fd)


async def test_counts_of_attempts_that_are_over_are_removed(rig: Rig):
    rig.folder.mkdir()
    (rig.folder / "gone.0.1").touch()
    (rig.folder / f"{KEY[0]}.0.1").touch()
    rig.inputs.sweep()
    assert [path.name for path in rig.folder.iterdir()] == [f"{KEY[0]}.0.1"]
    rig.inputs.ended(KEY)
    assert list(rig.folder.iterdir()) == []
