"""The process that runs calls, over real pipes: results in order, calls returned, functions sent once."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import cloudpickle
import pytest

from phalanx.worker.frames import (
    CallEnded,
    CallsReady,
    CallsReturned,
    FrameReader,
    FromProcess,
    ReturnCalls,
    RunCalls,
    write_frame,
)
from phalanx.worker.main import CallRunner
from tests.support.called import square, wait_for
from tests.support.waiting import wait_until


class HeardProcess:
    """A process, and all that it said."""

    def __init__(self) -> None:
        self.heard: list[FromProcess] = []
        self.has_ended = threading.Event()
        self.runner = CallRunner(self._hear, str(Path.cwd()))

    def _hear(self, process: CallRunner, messages: list[FromProcess] | None) -> None:
        self.heard += messages or []
        if messages is None:
            self.has_ended.set()

    def send(self, function: object, *calls: tuple[int, tuple[object, ...]], known: bool = False) -> None:
        pickled = cloudpickle.dumps(function)
        rows = [(id, pickle.dumps((args, {}))) for id, args in calls]
        self.runner.send(RunCalls(repr(function), b"" if known else pickled, rows))

    def ended(self) -> list[CallEnded]:
        return [each for each in self.heard if isinstance(each, CallEnded)]


@pytest.fixture
def process() -> Iterator[HeardProcess]:
    found = HeardProcess()
    yield found
    found.runner.end()
    assert found.has_ended.wait(10.0)


def test_calls_end_in_order(process):
    process.send(square, (1, (2,)), (2, (3,)))
    process.send(square, (3, (4,)), known=True)
    wait_until(lambda: len(process.ended()) == 3, 20.0, "three results")
    assert isinstance(process.heard[0], CallsReady)
    assert [(each.id, pickle.loads(each.value)) for each in process.ended()] == [(1, 4), (2, 9), (3, 16)]


def test_calls_that_are_not_begun_are_returned_and_their_function_is_kept(process, tmp_path):
    blocked = partial(wait_for, str(tmp_path))
    process.send(blocked, (0, (0, "go")))
    wait_until(lambda: list(tmp_path.glob("0-*")), 20.0, "the first call runs")
    process.send(square, (1, (2,)), (2, (3,)))
    process.runner.send(ReturnCalls())
    wait_until(lambda: len(process.heard) == 2, 20.0, "calls came back")
    assert process.heard[1] == CallsReturned([1, 2])
    (tmp_path / "go").write_text("")
    process.send(square, (4, (5,)), known=True)
    wait_until(lambda: len(process.ended()) == 2, 20.0, "both results")
    assert [(each.id, each.outcome) for each in process.ended()] == [(0, "returned"), (4, "returned")]


def test_a_process_that_ends_says_how(process):
    process.send(os._exit, (0, (7,)))
    assert process.has_ended.wait(20.0)
    assert process.runner.has_ended
    assert "exit code 7" in process.runner.told()


def test_a_message_arrives_whole_however_it_is_cut():
    source, target = os.pipe()
    reader = FrameReader(source, FromProcess)
    large = CallEnded(1, "returned", bytes(300_000))
    writing = threading.Thread(target=write_frame, args=(target, large))
    writing.start()
    assert reader.read() == [large]
    writing.join()
    os.close(target)
    assert reader.read() is None
    os.close(source)
