"""The keeper with real processes: what ends, what is killed, and what survives.

Tests wait for conditions, with a deadline. A task that has to be alive at a certain moment waits on a FIFO.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from phalanx.runner.keeper import VERSION
from phalanx.runner.keeper_messages import KeeperLost, Misunderstood, ProcessEnded
from phalanx.runner.machine import LocalMachine
from phalanx.runner.processes import KeeperFailed, Processes
from tests.support.keeper_node import Node, alive, escape, state_of, tell

FOREVER = "exec sleep 300"


# How attempts end


def test_an_exit_code_and_what_was_written_are_told(tmp_path: Path):
    async def story(node: Node) -> None:
        node.sh("j/0/1", "echo out; echo oh no >&2; cat; exit 3", cwd="/usr", env={"WHO": "me"})
        end = await node.ended("j/0/1")
        assert (end.code, end.signal, end.oom, end.reason) == (3, None, False, None)
        assert end.stderr_tail == "oh no\n"
        assert node.out("j/0/1").read_text() == "out\n"
        assert node.out("j/0/1").stat().st_mode & 0o777 == 0o600
        assert end.started_at is not None
        assert end.started_at <= end.ended_at

    tell(tmp_path, story)


def test_a_task_sees_its_own_environment_and_folder_only(tmp_path: Path):
    async def story(node: Node) -> None:
        node.sh("j/0/1", "pwd; env", cwd="/usr", env={"WHO": "me"})
        assert (await node.ended("j/0/1")).code == 0
        words = node.out("j/0/1").read_text().split()
        assert words[0] == "/usr"
        assert {word.partition("=")[0] for word in words[1:]} <= {
            *("PATH", "WHO", "PHALANX_ATTEMPT_KEY", "PHALANX_KEEPER", "PWD", "OLDPWD", "SHLVL", "_")
        }
        assert "PHALANX_ATTEMPT_KEY=j/0/1" in words

    tell(tmp_path, story)


def test_a_signal_is_told_as_a_signal(tmp_path: Path):
    async def story(node: Node) -> None:
        node.sh("j/0/1", "kill -SEGV $$")
        end = await node.ended("j/0/1")
        assert (end.code, end.signal, end.oom) == (None, signal.SIGSEGV, False)

    tell(tmp_path, story)


def test_signals_ignored_around_us_are_not_ignored_by_tasks(tmp_path: Path):
    async def story(node: Node) -> None:
        node.sh("j/0/1", "grep SigIgn /proc/self/status")
        await node.ended("j/0/1")
        ignored = int(node.out("j/0/1").read_text().split()[1], 16)
        assert ignored & (1 << 31) - 1 == 0  # above are two that glibc keeps for itself

    tell(tmp_path, story)


def test_hundreds_started_at_once_all_end(tmp_path: Path):
    async def story(node: Node) -> None:
        keys = [f"j/{position}/1" for position in range(300)]
        for key in keys:
            node.start(key, "true")
        codes = [(await node.ended(key)).code for key in keys]
        assert codes == [0] * 300
        assert len((await node.processes.listing()).attempts) == 300
        node.processes.forget(keys)
        assert (await node.processes.listing()).attempts == ()

    tell(tmp_path, story)


# Starts that are refused


@pytest.mark.parametrize(
    ("argv", "how", "code", "words"),
    [
        (("no-such-program",), {}, "not_found", "no-such-program"),
        (("/no/such/program",), {}, "not_found", "/no/such/program"),
        (("true",), {"env": {"PATH": "/opt/s3cr3t/bin"}}, "not_found", "no program 'true' in its PATH"),
        (("/etc/passwd",), {}, "not_executable", "Permission denied"),
        (("true",), {"cwd": "/no/such/folder"}, "no_cwd", "/no/such/folder"),
        (("true",), {"out": "/no/such/folder/out"}, "no_log", "No such file or directory"),
        (("true",), {"err": "/dev/null/err"}, "no_log", "Not a directory"),
        (("true",), {"cpus": [4000]}, "spawn_failed", "4000"),
        (("true",), {"cgroups": ["/no/such/cgroup"]}, "spawn_failed", "/no/such/cgroup"),
        (("true", "a\0b"), {}, "not_readable", "null byte"),
        (("sh", "x" * 200_000), {}, "not_executable", "'sh' in its PATH: Argument list too long"),
    ],
)
def test_what_cannot_start_is_refused_with_a_reason(
    tmp_path: Path, argv: tuple[str, ...], how: dict[str, Any], code: str, words: str
):
    async def story(node: Node) -> None:
        node.start("j/0/1", *argv, **how)
        refusal = await node.refused("j/0/1")
        assert refusal.code == code
        assert words in refusal.message
        assert (
            "s3cr3t" not in refusal.message
        )  # a value of the job's environment, and others can read the message
        node.start("j/1/1", "true")  # the keeper itself is back in its own folder
        assert (await node.ended("j/1/1")).code == 0

    tell(tmp_path, story)


def test_a_script_without_an_interpreter_says_so(tmp_path: Path):
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o700)

    async def story(node: Node) -> None:
        node.start("j/0/1", str(script))
        refusal = await node.refused("j/0/1")
        assert refusal.code == "not_executable"
        assert "interpreter" in refusal.message

    tell(tmp_path, story)


def test_a_start_after_its_stop_is_refused_even_by_the_next_keeper(tmp_path: Path):
    async def story(node: Node) -> None:
        node.processes.stop("j/0/1", 1.0)
        node.start("j/0/1", "true")
        assert (await node.refused("j/0/1")).code == "stopped"
        os.kill(node.keeper_pid(), signal.SIGKILL)
        await node.until(lambda: any(isinstance(event, KeeperLost) for event in node.events))
        node.events.clear()
        await node.connect()
        node.start("j/0/1", "true")
        assert (await node.refused("j/0/1")).code == "stopped"

    tell(tmp_path, story)


def test_a_key_is_never_started_twice(tmp_path: Path):
    async def story(node: Node) -> None:
        node.sh("j/0/1", FOREVER)
        pid = await node.started("j/0/1")
        node.events.clear()
        node.sh("j/0/1", FOREVER)
        assert await node.started("j/0/1") == pid

    tell(tmp_path, story)


def test_an_unreadable_request_harms_nobody(tmp_path: Path):
    async def story(node: Node) -> None:
        node.sh("j/0/1", FOREVER)
        pid = await node.started("j/0/1")
        for request in (["dance"], ["stop"], [], ["signal", "j/0/1", 10**6], ["brief", "b", 7], [["list"]]):
            node.processes._ask(*request)
        node.processes._ask("start", "j/1/1", "j/0/1", {"out": 5, "err": None})
        assert (await node.refused("j/1/1")).code == "not_readable"
        assert sum(isinstance(event, Misunderstood) for event in node.events) == 6
        assert alive(pid)

    tell(tmp_path, story)


# Signals, stops and pauses


def test_a_signal_reaches_the_task(tmp_path: Path):
    async def story(node: Node) -> None:
        node.sh("j/0/1", "trap 'exit 7' USR1; echo ready; sleep 300 & wait")
        await node.said("j/0/1", "ready")
        node.processes._ask("signal", "j/0/1", signal.SIGUSR1)
        assert (await node.ended("j/0/1")).code == 7

    tell(tmp_path, story)


def test_stop_is_polite_first(tmp_path: Path):
    async def story(node: Node) -> None:
        node.sh("j/0/1", "trap 'exit 0' TERM; echo ready; sleep 300 & wait")
        await node.said("j/0/1", "ready")
        node.processes.stop("j/0/1", 60.0)
        assert (await node.ended("j/0/1")).code == 0

    tell(tmp_path, story)


def test_why_it_was_stopped_is_told_to_the_next_runner_and_by_the_next_keeper(tmp_path: Path):
    async def story(node: Node) -> None:
        node.sh("j/0/1", "exec sleep 300")
        await node.started("j/0/1")
        node.processes.stop("j/0/1", 60.0, "timeout")
        node.processes.stop("j/0/1", 60.0, "cancelled")
        assert (await node.ended("j/0/1")).why == "timeout"
        os.kill(node.keeper_pid(), signal.SIGKILL)
        await node.until(lambda: any(isinstance(event, KeeperLost) for event in node.events))
        await node.connect()
        row = await node.row("j/0/1")
        assert row is not None
        assert row.exit is not None
        assert row.exit.why == "timeout"

    tell(tmp_path, story)


def test_stop_kills_what_does_not_listen(tmp_path: Path):
    async def story(node: Node) -> None:
        node.sh("j/0/1", "trap '' TERM; echo ready; sleep 300; sleep 300")
        await node.said("j/0/1", "ready")
        node.processes.stop("j/0/1", 0.2)
        row = await node.row("j/0/1")
        assert row is not None
        assert row.state == "stopping"
        end = await node.ended("j/0/1")
        assert end.signal == signal.SIGKILL
        assert end.started_at is not None
        assert end.ended_at - end.started_at >= 0.2

    tell(tmp_path, story)


def test_a_paused_task_stands_still_and_goes_on(tmp_path: Path):
    async def story(node: Node) -> None:
        node.sh("j/0/1", FOREVER)
        pid = await node.started("j/0/1")
        node.processes.pause("j/0/1")
        await node.until(lambda: state_of(pid) == "T")
        row = await node.row("j/0/1")
        assert row is not None
        assert row.state == "paused"
        node.processes.resume("j/0/1")
        await node.until(lambda: state_of(pid) == "S")

    tell(tmp_path, story)


def test_a_paused_task_hears_its_stop(tmp_path: Path):
    async def story(node: Node) -> None:
        node.sh("j/0/1", "trap 'exit 9' TERM; echo ready; sleep 300 & wait")
        await node.said("j/0/1", "ready")
        node.processes.pause("j/0/1")
        node.processes.stop("j/0/1", 60.0)
        assert (await node.ended("j/0/1")).code == 9

    tell(tmp_path, story)


# Whole trees


def test_who_escaped_ends_with_its_attempt(tmp_path: Path):
    async def story(node: Node) -> None:
        node.sh("other/0/1", escape("other", "sleep 300") + FOREVER)
        node.sh("j/0/1", escape("kept", "sleep 300") + escape("bare", "env -i /bin/sleep 300") + "exit 4")
        assert (await node.ended("j/0/1")).code == 4
        assert not alive(node.pid_in("kept"))
        await node.until(lambda: alive(node.pid_in("other")))
        node.processes.stop("other/0/1", 0.0)
        await node.ended("other/0/1")
        assert not alive(node.pid_in("other"))
        assert not alive(node.pid_in("bare"))  # unknown by now: it is killed with the last attempt

    tell(tmp_path, story)


def test_a_stop_reaches_who_escaped(tmp_path: Path):
    async def story(node: Node) -> None:
        (node.folder / "listener").write_text("trap 'echo heard; exit' TERM\necho ready\nsleep 300 & wait\n")
        node.sh("j/0/1", "trap : TERM; " + escape("child", "sh listener") + "wait; wait")
        await node.said("j/0/1", "ready")
        node.processes.stop("j/0/1", 60.0)
        await node.said("j/0/1", "heard")
        await node.ended("j/0/1")
        assert not alive(node.pid_in("child"))

    tell(tmp_path, story)


def test_background_processes_end_before_the_attempt_is_called_ended(tmp_path: Path):
    async def story(node: Node) -> None:
        node.sh("j/0/1", "sleep 300 & echo $! >child; exit 0")
        assert (await node.ended("j/0/1")).code == 0
        assert not alive(node.pid_in("child"))

    tell(tmp_path, story)


# What outlives what


def test_a_killed_runner_loses_neither_task_nor_exit_code(tmp_path: Path):
    os.mkfifo(tmp_path / "gate")
    runner = f"""
import asyncio, os, pathlib, signal, sys
sys.path[:0] = {sys.path!r}
from tests.support.keeper_node import Node
async def main():
    node = Node(pathlib.Path({str(tmp_path)!r}))
    await node.connect()
    node.sh("j/0/1", "read line <gate; exit $line")
    await node.started("j/0/1")
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
    killed = subprocess.run([sys.executable, "-c", runner], check=False, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr

    async def story(node: Node) -> None:
        row = await node.row("j/0/1")
        assert row is not None
        assert row.state == "running"
        assert alive(row.pid)
        (tmp_path / "gate").write_text("6\n")
        assert (await node.ended("j/0/1")).code == 6

    tell(tmp_path, story)


def test_an_end_nobody_heard_is_in_the_listing(tmp_path: Path):
    async def story(node: Node) -> None:
        os.mkfifo(tmp_path / "gate")
        node.sh("j/0/1", "read line <gate; exit $line")
        pid = await node.started("j/0/1")
        await node.processes.close()
        (tmp_path / "gate").write_text("6\n")
        await node.until(lambda: not alive(pid))
        await node.connect()
        row = await node.row("j/0/1")
        assert row is not None
        assert row.exit is not None
        assert row.exit.code == 6

    tell(tmp_path, story)


def test_a_newer_connection_replaces_the_older(tmp_path: Path):
    async def story(node: Node) -> None:
        newer = await Processes.open(LocalMachine(tmp_path), lambda event: None)
        await node.until(lambda: any(isinstance(event, KeeperLost) for event in node.events))
        with pytest.raises(KeeperFailed):
            await node.processes.listing()
        assert (await newer.listing()).facts.version == VERSION

    tell(tmp_path, story)


def test_after_the_keepers_own_death_the_next_one_ends_and_tells(tmp_path: Path):
    async def story(node: Node) -> None:
        node.sh("done/0/1", "exit 5")
        node.sh("forgotten/0/1", "exit 5")
        await node.ended("done/0/1")
        await node.ended("forgotten/0/1")
        node.processes.forget(["forgotten/0/1"])
        node.sh("j/0/1", escape("escaped", "sleep 300") + "sleep 300 & " + FOREVER)
        pid = await node.started("j/0/1")
        await node.until(lambda: node.pid_in("escaped"))
        os.kill(node.keeper_pid(), signal.SIGKILL)
        await node.until(lambda: any(isinstance(event, KeeperLost) for event in node.events))
        assert alive(pid)
        await node.connect()
        exits = {row.key: row.exit for row in (await node.processes.listing()).attempts}
        assert not alive(pid)
        assert not alive(node.pid_in("escaped"))
        assert {key: exit and (exit.code, exit.reason) for key, exit in exits.items()} == {
            "done/0/1": (5, None),
            "j/0/1": (None, "unknown"),
        }

    tell(tmp_path, story)


def test_a_sign_of_life_does_not_wait_behind_many_starts(tmp_path: Path):
    async def story(node: Node) -> None:
        for number in range(600):
            node.start(f"j/{number}/1", "true")
        await node.processes.ping()
        assert sum(isinstance(event, ProcessEnded) for event in node.events) < 300
        await node.until(lambda: sum(isinstance(event, ProcessEnded) for event in node.events) == 600)

    tell(tmp_path, story)
