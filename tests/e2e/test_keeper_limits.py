"""The keeper's limits with real processes: memory, CPUs, log size, the lease, and its own shutdown."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from phalanx.clock import SystemClock
from phalanx.runner import logs
from phalanx.runner.cgroups import Cgroups
from phalanx.runner.keeper import link, programs, service
from phalanx.runner.keeper.cgroup import members, oom_kills
from phalanx.runner.keeper_messages import ProcessEnded
from phalanx.runner.log_files import log_path
from phalanx.runner.machine import LocalMachine
from phalanx.runner.processes import Processes
from tests.support.keeper_node import Node, alive, tell

MIB = 1 << 20
PYTHON = (sys.executable, "-I", "-S", "-c")
FOREVER = "exec sleep 300"


@pytest.fixture
def cgroups() -> Iterator[Cgroups]:
    found = Cgroups.find(f"test-{os.getpid()}")
    if found.why_not is not None:
        pytest.skip(f"memory cannot be limited here: {found.why_not}")
    yield found
    found.close()


def test_out_of_memory_is_told_apart_from_a_kill(tmp_path: Path, cgroups: Cgroups):
    async def story(node: Node) -> None:
        cgroup = cgroups.create("lane", 64 * MIB)
        assert cgroup is not None
        node.start("greedy/0/1", *PYTHON, f"bytearray({256 * MIB})", cgroups=cgroup.folders)
        end = await node.ended("greedy/0/1")
        assert (end.signal, end.oom) == (signal.SIGKILL, True)
        node.sh("killed/0/1", "kill -KILL $$", cgroups=cgroup.folders)
        end = await node.ended("killed/0/1")
        assert (end.signal, end.oom) == (signal.SIGKILL, False)  # though the same cgroup has seen an OOM kill
        assert oom_kills(list(cgroup.folders)) >= 1
        assert cgroups.remove(cgroup)

    tell(tmp_path, story)


def test_an_oom_kill_of_a_child_alone_is_told_too(tmp_path: Path, cgroups: Cgroups):
    async def story(node: Node) -> None:
        cgroup = cgroups.create("lane", 64 * MIB)
        assert cgroup is not None
        greedy = f"{sys.executable} -I -S -c 'bytearray({256 * MIB})'; exit 3"
        node.sh("j/0/1", greedy, cgroups=cgroup.folders)
        end = await node.ended("j/0/1")
        assert end.oom
        assert end.code == 3 or end.signal == signal.SIGKILL  # v2 ends the whole group

    tell(tmp_path, story)


def test_the_task_is_inside_from_its_first_instruction_and_the_keeper_is_not(
    tmp_path: Path, cgroups: Cgroups
):
    async def story(node: Node) -> None:
        cgroup = cgroups.create("lane", 64 * MIB)
        assert cgroup is not None
        node.start("j/0/1", "cat", "/proc/self/cgroup", cgroups=cgroup.folders)
        assert (await node.ended("j/0/1")).code == 0
        assert node.out("j/0/1").read_text().count("/lane\n") == len(cgroup.folders)
        assert members(list(cgroup.folders)) == set()
        assert "/lane\n" not in Path(f"/proc/{node.keeper_pid()}/cgroup").read_text()

    tell(tmp_path, story)


def test_the_smallest_limit_kills_tasks_and_never_the_keeper(tmp_path: Path, cgroups: Cgroups):
    async def story(node: Node) -> None:
        cgroup = cgroups.create("lane", 1)
        assert cgroup is not None
        keeper = node.keeper_pid()
        for position in range(30):
            key = f"j/{position}/1"
            node.start(key, *PYTHON, f"bytearray({64 * MIB})", cgroups=cgroup.folders)
            assert (await node.ended(key)).oom
        assert node.keeper_pid() == keeper

    tell(tmp_path, story)


def test_nothing_escapes_a_cgroup_not_even_without_environment(tmp_path: Path, cgroups: Cgroups):
    async def story(node: Node) -> None:
        cgroup = cgroups.create("lane", 0)
        assert cgroup is not None
        node.sh("other/0/1", FOREVER)
        daemon = "setsid env -i sh -c 'echo $$ >child; exec sleep 300' & while ! [ -s child ]; do :; done"
        node.sh("j/0/1", daemon, cgroups=cgroup.folders)
        assert (await node.ended("j/0/1")).code == 0
        assert not alive(node.pid_in("child"))
        assert cgroups.remove(cgroup)

    tell(tmp_path, story)


def test_cgroups_left_behind_are_swept_and_living_ones_are_not(tmp_path: Path, cgroups: Cgroups):
    async def story(node: Node) -> None:
        left, living = cgroups.create("left", 64 * MIB), cgroups.create("living", 64 * MIB)
        assert left is not None
        assert living is not None
        node.sh("j/0/1", FOREVER, cgroups=living.folders)
        await node.started("j/0/1")
        again = Cgroups.find(f"test-{os.getpid()}")
        again.sweep()
        assert not any(Path(folder).exists() for folder in left.folders)
        assert all(Path(folder).exists() for folder in living.folders)

    tell(tmp_path, story)


def test_a_task_runs_on_its_cpus_and_the_next_one_on_all(tmp_path: Path):
    async def story(node: Node) -> None:
        usable = sorted(os.sched_getaffinity(0))
        node.sh("j/0/1", "grep Cpus_allowed_list /proc/self/status", cpus=usable[-1:])
        node.start("j/1/1", *PYTHON, "import os; print(sorted(os.sched_getaffinity(0)))")
        await node.ended("j/0/1")
        await node.ended("j/1/1")
        assert node.out("j/0/1").read_text().split()[1] == str(usable[-1])
        assert node.out("j/1/1").read_text().strip() == str(usable)

    tell(tmp_path, story)


def test_without_a_renewed_lease_everything_is_stopped(tmp_path: Path):
    async def story(node: Node) -> None:
        node.processes.lease(60.0)
        node.sh("j/0/1", "trap 'exit 0' TERM; echo ready; sleep 300 & wait")
        node.sh("deaf/0/1", "trap '' TERM; echo ready; sleep 300; sleep 300")
        await node.said("j/0/1", "ready")
        await node.said("deaf/0/1", "ready")
        node.processes.lease(0.2)
        ends = [await node.ended("j/0/1"), await node.ended("deaf/0/1")]
        assert [(end.code, end.signal, end.reason) for end in ends] == [
            (0, None, "fenced"),
            (None, signal.SIGKILL, "fenced"),
        ]
        node.start("late/0/1", "true")
        assert (await node.refused("late/0/1")).code == "fenced"
        node.processes.lease(60.0)
        node.start("late/0/2", "true")
        assert (await node.ended("late/0/2")).reason is None

    tell(tmp_path, story)


def test_a_lease_that_was_long_on_its_way_is_not_lengthened_by_that(tmp_path: Path):
    async def story(node: Node) -> None:
        node.sh("j/0/1", "trap 'exit 0' TERM; echo ready; sleep 300 & wait")
        await node.said("j/0/1", "ready")
        node.processes.lease(60.0, SystemClock().monotonic() - 1.0)
        assert (await node.ended("j/0/1")).reason == "fenced"

    tell(tmp_path, story)


def test_the_lease_runs_out_while_nobody_is_connected(tmp_path: Path):
    async def story(node: Node) -> None:
        node.processes.lease(0.3)
        node.sh("j/0/1", FOREVER)
        pid = await node.started("j/0/1")
        await node.processes.close()
        await node.until(lambda: not alive(pid))
        await node.connect()
        row = await node.row("j/0/1")
        assert row is not None
        assert row.exit is not None
        assert row.exit.reason == "fenced"

    tell(tmp_path, story)


def test_a_log_written_as_fast_as_can_be_stays_near_its_limit(tmp_path: Path):
    """From its first moment, and after it has been quiet for a while."""
    over: list[int] = []

    async def story(node: Node) -> None:
        path, go = node.out("j/0/1"), node.folder / "go"
        write = "dd if=/dev/zero bs=256k count=4000 status=none"
        node.sh("j/0/1", f"{write}; until [ -e go ]; do sleep 0.05; done; {write}", log_max_bytes=64 * MIB)

        def look() -> None:
            over.append(path.stat().st_blocks * 512 - 64 * MIB if path.exists() else 0)
            if path.exists() and path.stat().st_size == 1000 * MIB:
                go.touch()

        async with asyncio.timeout(60):
            while await node.row("j/0/1") is None or not node._find(ProcessEnded, "j/0/1"):
                look()
        assert path.stat().st_size == 2000 * MIB

    tell(tmp_path, story)
    assert max(over) <= 16 * MIB


def test_the_middle_of_a_large_log_is_given_back(tmp_path: Path):
    """Both while the task runs and when it ended; beginning, end and offsets stay."""

    async def story(node: Node) -> None:
        path = log_path(node.folder, "j", 0, 1, "stdout")
        Path(path).parent.mkdir()
        script = f"echo begin; head -c {40 * MIB} /dev/zero | tr '\\0' x; echo end; "
        node.sh("j/0/1", script + FOREVER, out=str(path), log_max_bytes=4 * MIB)
        written = Path(path)
        await node.until(lambda: written.exists() and written.stat().st_size == 40 * MIB + 10)
        await node.until(lambda: written.stat().st_blocks * 512 <= 4 * MIB)
        assert logs.read(path, 0, 6).data == b"begin\n"
        assert logs.tail(path, 1, 100).data.endswith(b"xend\n")
        behind = logs.read(path, logs.read(path, 0).size // 2)
        assert behind.gap > 10 * MIB
        assert behind.data.strip(b"x") == b"end\n"
        node.sh("j/1/1", script, log_max_bytes=4 * MIB)
        await node.ended("j/1/1")
        assert node.out("j/1/1").stat().st_blocks * 512 <= 4 * MIB
        assert (await node.processes.listing()).facts.log_cap

    tell(tmp_path, story)


def test_a_node_without_room_says_so_and_blames_no_program(tmp_path: Path):
    async def story(node: Node) -> None:
        keeper = node.keeper_pid()
        usual = resource.prlimit(keeper, resource.RLIMIT_NOFILE)
        resource.prlimit(keeper, resource.RLIMIT_NOFILE, (0, usual[1]))
        node.start("j/0/1", "true")
        assert (await node.refused("j/0/1")).code == "exhausted"
        resource.prlimit(keeper, resource.RLIMIT_NOFILE, usual)
        node.start("j/0/2", "true")
        assert (await node.ended("j/0/2")).code == 0

    tell(tmp_path, story)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a file system of 1 MiB."""
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "phalanx-test", str(tmp_path)]
    mounted = subprocess.run(mount, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"this user may not mount a tmpfs: {mounted.stderr.decode().strip()}")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def test_a_full_disk_refuses_a_task_as_one_that_may_run_later(small_disk: Path):
    async def story(node: Node) -> None:
        node.start("j/0/1", "true")
        assert (await node.ended("j/0/1")).code == 0
        filler = small_disk / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
        for number in range(1, 50):  # the journal has space for a few lines
            node.start(f"j/{number}/1", "true")
        assert {(await node.refused(f"j/{number}/1")).code for number in range(40, 50)} == {"exhausted"}
        filler.unlink()
        node.start("j/0/2", "true")
        assert (await node.ended("j/0/2")).code == 0

    tell(small_disk, story)


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC])
def test_no_process_could_be_made_is_not_the_programs_fault(number: int):
    refusal = programs.refusal(OSError(number, os.strerror(number)), "/bin/true", "true")
    assert refusal.code == "exhausted"
    assert os.strerror(number) in refusal.message


def test_a_folder_deeper_than_a_socket_address_will_do(tmp_path: Path):
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)

    async def story(node: Node) -> None:
        node.start("j/0/1", "true")
        assert (await node.ended("j/0/1")).code == 0
        assert (deep / "keeper.sock").stat().st_mode & 0o777 == 0o600

    tell(deep, story)


def test_two_runners_that_start_at_once_get_one_keeper(tmp_path: Path):
    async def story(node: Node) -> None:
        await node.processes.shutdown(0.0)
        await asyncio.gather(*(Processes.open(LocalMachine(tmp_path), lambda event: None) for _ in range(4)))
        assert len(node.keeper_pids()) == 1

    tell(tmp_path, story)


def test_a_shutdown_ends_the_tasks_and_then_the_keeper(tmp_path: Path):
    async def story(node: Node) -> None:
        node.sh("j/0/1", FOREVER)
        node.sh("deaf/0/1", "trap '' TERM; echo ready; sleep 300; sleep 300")
        await node.said("deaf/0/1", "ready")
        keeper, pids = node.keeper_pid(), [await node.started("j/0/1"), await node.started("deaf/0/1")]
        await node.processes.shutdown(0.2)
        await node.until(lambda: not alive(keeper))
        assert not any(map(alive, pids))
        assert (await node.ended("j/0/1")).signal == signal.SIGTERM
        await node.connect()  # a new one, which has read what the old one wrote
        exits = {row.key: row.exit and row.exit.signal for row in (await node.processes.listing()).attempts}
        assert exits == {"j/0/1": signal.SIGTERM, "deaf/0/1": signal.SIGKILL}

    tell(tmp_path, story)


def test_a_terminated_keeper_stops_its_tasks(tmp_path: Path):
    async def story(node: Node) -> None:
        node.sh("j/0/1", FOREVER)
        pid = await node.started("j/0/1")
        os.kill(node.keeper_pid(), signal.SIGTERM)
        assert (await node.ended("j/0/1")).signal == signal.SIGTERM
        assert not alive(pid)

    tell(tmp_path, story)


def test_a_keeper_that_nobody_needs_ends(tmp_path: Path):
    """XW9: its runner was refused for good, nothing runs; its journal stays."""
    path = Path(service.__file__).with_name("__main__.py")
    subprocess.run([sys.executable, "-I", "-S", str(path), str(tmp_path), "0.3"], check=True)
    node, socket = Node(tmp_path), tmp_path / link.NAME

    async def story() -> None:
        await node.connect()  # while a runner is connected it stays
        node.sh("j/0/1", "exit 3")
        assert (await node.ended("j/0/1")).code == 3
        await node.processes.close()
        await node.until(lambda: not socket.exists())
        await node.connect()
        row = await node.row("j/0/1")
        assert row is not None
        assert row.exit is not None
        assert row.exit.code == 3
        await node.processes.shutdown(0.0)

    asyncio.run(story())
