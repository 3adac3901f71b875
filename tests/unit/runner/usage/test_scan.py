"""Processes of attempts in the real /proc: whose they are, and what they use within a stated tolerance."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from phalanx.runner.usage.scan import ProcessScan, ProcessSums
from tests.support import known_load
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio
KEY = (
    f"01kx{os.getpid():022}/0/1/1"  # other processes that run these tests at the same time look for their own
)
MIB = 1 << 20


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@contextmanager
def running(argv: list[str], key: str = KEY) -> Iterator[subprocess.Popen[bytes]]:
    """A leader as the keeper starts one: in a session of its own, with its key; it has used what it should."""
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env=os.environ | {"PHALANX_ATTEMPT_KEY": key},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"used\n"
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


async def scanned(scan: ProcessScan, leaders: dict[int, str]) -> dict[str, ProcessSums]:
    found: dict[str, ProcessSums] = {}
    async for each in scan.scan(leaders):
        found = each
    return found


async def test_processor_time_is_that_of_the_process_within_a_tenth():
    with running(known_load.cpu(0.6)) as process:
        found = await scanned(ProcessScan(), {process.pid: KEY})
    assert found[KEY].cpu_s == pytest.approx(0.6, rel=0.1, abs=0.03)
    assert found[KEY].pids == [process.pid]


async def test_children_that_have_ended_count():
    with running(known_load.cpu(0.3, children=2)) as process:
        found = await scanned(ProcessScan(), {process.pid: KEY})
    assert found[KEY].cpu_s == pytest.approx(0.9, rel=0.1, abs=0.06)


async def test_memory_is_that_of_all_processes_within_a_tenth():
    with running(known_load.memory(100, children=2)) as process:
        found = await scanned(ProcessScan(), {process.pid: KEY})
    own = 3 * 12 * MIB  # of three interpreters, about
    assert found[KEY].memory_bytes == pytest.approx(300 * MIB + own, rel=0.1)
    assert len(found[KEY].pids) == 3


async def test_bytes_read_and_written_are_those_of_the_disk(tmp_path: Path):
    path = tmp_path / "file"
    with running(known_load.io(str(path), 16)) as process:
        told = Path(f"/proc/{process.pid}/io").read_text()
        found = await scanned(ProcessScan(), {process.pid: KEY})
    assert f"write_bytes: {found[KEY].written_bytes}\n" in told
    if "write_bytes: 0\n" not in told:  # a filesystem in memory has no disk behind it
        assert found[KEY].written_bytes == pytest.approx(16 * MIB, rel=0.1)


ESCAPES = """
import os, sys
read, write = os.pipe()
if not os.fork():
    os.setsid()
    if not os.fork():
        os.write(write, b".")
        sys.stdin.read()
        os._exit(0)
    sys.stdin.read()
    os._exit(0)
os.read(read, 1)
print('used', flush=True)
sys.stdin.read()
"""


async def test_a_process_that_left_its_session_is_found_by_its_parent():
    with running([sys.executable, "-c", ESCAPES]) as process:
        scan, leaders = ProcessScan(), {process.pid: KEY}
        found = await scanned(scan, leaders)
        for pid in found[KEY].pids:
            if pid != process.pid:
                os.kill(pid, signal.SIGKILL)
    assert len(found[KEY].pids) == 3


ORPHAN = """
import os, sys
read, write = os.pipe()
if not os.fork():
    os.setsid()
    pid = os.fork()
    if not pid:
        os.closerange(0, 3)
        sys.stdin = None
        import time
        while True:
            time.sleep(60)
    os.write(write, str(pid).encode())
    os._exit(0)
os.wait()
orphan = os.read(read, 20).decode()
open(sys.argv[1], 'w').write(orphan)
print('used', flush=True)
sys.stdin.read()
"""


async def test_one_whose_parents_are_gone_is_found_by_its_environment(tmp_path: Path):
    with running([sys.executable, "-c", ORPHAN, str(tmp_path / "pid")]) as process:
        orphan = int((tmp_path / "pid").read_text())
        try:
            found = await scanned(ProcessScan(), {process.pid: KEY})
            assert sorted(found[KEY].pids) == sorted([process.pid, orphan])
            other = await scanned(ProcessScan(), {process.pid: "another/0/1/1"})
            assert other["another/0/1/1"].pids == [
                process.pid
            ]  # its key is that of an attempt that has ended
        finally:
            os.kill(orphan, signal.SIGKILL)


async def test_an_orphan_that_was_seen_before_stays_with_its_attempt(tmp_path: Path):
    with running([sys.executable, "-c", ESCAPES]) as process:
        scan, leaders = ProcessScan(), {process.pid: KEY}
        first = await scanned(scan, leaders)
        middle = [
            pid
            for pid in first[KEY].pids
            if Path(f"/proc/{pid}/stat").read_text().split()[3] == str(process.pid)
        ]
        os.kill(middle[0], signal.SIGKILL)
        wait_until(lambda: "State:\tZ" in Path(f"/proc/{middle[0]}/status").read_text(), what="it is dead")
        again = await scanned(scan, leaders)
        left = set(again[KEY].pids)
        for pid in left - {process.pid, middle[0]}:
            os.kill(pid, signal.SIGKILL)
    assert left == set(first[KEY].pids)


async def test_others_are_not_counted_and_not_read_twice(monkeypatch: pytest.MonkeyPatch):
    with running(known_load.cpu(0.0)) as process:
        scan, leaders = ProcessScan(), {process.pid: KEY}
        await scanned(scan, leaders)
        await scanned(scan, leaders)
        read: list[str] = []
        real = scan._read

        def noted(name: str, most: int) -> bytes:
            read.append(name)
            return real(name, most)

        monkeypatch.setattr(scan, "_read", noted)
        found = await scanned(scan, leaders)
    assert found.keys() == {KEY}
    assert f"{process.pid}/stat" in read
    assert f"{os.getpid()}/stat" not in read


async def test_a_folder_without_processes_gives_nothing(tmp_path: Path):
    assert await scanned(ProcessScan(str(tmp_path)), {1: KEY}) == {}
    assert await scanned(ProcessScan(str(tmp_path / "gone")), {1: KEY}) == {}
