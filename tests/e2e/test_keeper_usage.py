"""What a keeper tells with the end of an attempt: processor time, memory and I/O of everything that it reaped."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from msgspec import json

from phalanx.runner.keeper_messages import ProcessEnded
from tests.support import known_load
from tests.support.keeper_node import Node, tell

MIB = 1 << 20
KEY = "j/0/1/1"
ORPHAN = """
import os, sys, time
read, write = os.pipe()
if not os.fork():
    os.setsid()
    if not os.fork():
        begun = time.process_time()
        while time.process_time() - begun < 0.5:
            pass
        os.write(write, b".")
        while not os.path.exists(sys.argv[1]):
            time.sleep(0.01)
        os._exit(0)
    os._exit(0)
os.wait()
os.read(read, 1)
print("used", flush=True)
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
"""


def test_the_end_has_the_time_and_the_memory_of_the_tree(tmp_path: Path):
    async def story(node: Node) -> None:
        node.start(KEY, *known_load.cpu(0.3, children=2, until=str(tmp_path)))
        end = await node.ended(KEY)
        assert end.cpu_s == pytest.approx(0.9, rel=0.15)
        other = "j/1/1/1"
        node.start(other, *known_load.memory(80, until=str(tmp_path)))
        end = await node.ended(other)
        assert 80 * MIB < end.memory_peak_bytes < 110 * MIB

    tell(tmp_path, story)


def test_a_killed_attempt_has_used_something_too(tmp_path: Path):
    async def story(node: Node) -> None:
        node.start(KEY, *known_load.cpu(0.3, until="/nowhere/at/all"))
        await node.said(KEY, "used")
        node.processes.stop(KEY, 0.0)
        end = await node.ended(KEY)
        assert end.signal is not None
        assert end.cpu_s == pytest.approx(0.3, rel=0.25)

    tell(tmp_path, story)


def test_an_orphan_that_the_keeper_knew_counts_for_its_attempt(tmp_path: Path):
    """It is known once the keeper had a reason to look for orphans: here, a signal to the attempt."""

    async def story(node: Node) -> None:
        one, two = tmp_path / "one", tmp_path / "two"
        node.start(KEY, sys.executable, "-c", ORPHAN, str(one), str(two))
        await node.said(KEY, "used")
        node.processes.resume(KEY)
        await node.row(KEY)  # the keeper has carried that out
        one.touch()
        two.touch()
        end = await node.ended(KEY)
        assert end.cpu_s > 0.5

    tell(tmp_path, story)


def test_what_a_former_keeper_tells_is_understood():
    line = (
        b'["ended","j/0/1/1",{"code":0,"signal":null,"oom":false,"reason":null,"started_at":1.0,"ended_at":2.0,'
        b'"stderr_tail":"","stopped":false,"why":null}]'
    )
    found = json.decode(line, type=ProcessEnded)
    assert (found.exit.cpu_s, found.exit.memory_peak_bytes, found.exit.usage) == (0.0, 0, None)
