"""`phalanx exec` and `attach`, end to end: real processes beside real tasks, with pipes and with a real terminal."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import phalanx
from phalanx.errors import BadRequest, Conflict, Forbidden, NotFound, TooLarge
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.terminal import (
    a_terminal,
    command_environment,
    phalanx_words,
    run_phalanx,
)
from tests.support.waiting import wait_until

MEBIBYTE = 1 << 20


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealCluster]:
    folder = tmp_path_factory.mktemp("exec")
    with a_real_cluster(folder, {"n1": "cpus=16,gpus=4,type=h100,memory=80GiB,ram=16GiB"}) as found:
        yield found


@pytest.fixture(scope="module")
def task(cluster: RealCluster) -> str:
    """A task that runs for as long as the tests."""
    return a_task(cluster, env={"COLOUR": "dark red"}, gpus=2, cwd="/usr")


def a_task(cluster: RealCluster, script: str = "exec sleep 1000", **fields: object) -> str:
    id = cluster.client.submit(command=["sh", "-c", script], **fields).task_ids[0]  # type: ignore[arg-type]
    cluster.wait_task(id, "Running")
    return id


def pid_of(cluster: RealCluster, id: str) -> int:
    """The first process of a task."""
    return int(cluster.client.exec(id, ["sh", "-c", f"cat {cluster.folder}/{id}.pid"]).stdout)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_command_has_the_environment_the_folder_and_the_devices_of_its_task(
    cluster: RealCluster, task: str
):
    done = cluster.client.exec(task, ["sh", "-c", "pwd; env"])
    folder, *variables = done.stdout.decode().splitlines()
    env = dict(each.partition("=")[::2] for each in variables)
    assert folder == "/usr"
    assert env["COLOUR"] == "dark red"
    assert env["PHALANX_TASK_ID"] == task
    assert env["PHALANX_NODE"] == "n1"
    assert env["CUDA_VISIBLE_DEVICES"] == ",".join(map(str, cluster.client.task(task).devices))
    assert len(env["CUDA_VISIBLE_DEVICES"].split(",")) == 2


def test_a_command_is_in_the_cgroup_of_its_task_with_its_limits_and_mark(cluster: RealCluster):
    id = a_task(
        cluster,
        f"echo $$ >{cluster.folder}/$PHALANX_TASK_ID.pid; exec sleep 1000",
        memory="512MiB",
        targets=["n1"],
    )
    leader = pid_of(cluster, id)
    theirs = Path(f"/proc/{leader}/cgroup").read_text()
    script = "cd /proc/self; cat cgroup; echo ---; cat limits; echo ---; grep -E 'Uid|Gid|Umask' status"
    groups, limits, ids = cluster.client.exec(id, ["sh", "-c", script]).stdout.decode().split("---\n")
    assert groups == theirs
    assert "phalanx-n1" in groups
    assert limits == Path(f"/proc/{leader}/limits").read_text()
    status = Path(f"/proc/{leader}/status").read_text()
    assert all(line in status for line in ids.splitlines())
    cluster.client.cancel(id)


def test_streams_are_apart_and_the_exit_code_is_the_commands(cluster: RealCluster, task: str):
    done = run_phalanx(cluster, "exec", task, "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, b"out\n", b"err\n")
    killed = run_phalanx(cluster, "exec", task, "sh", "-c", "kill -TERM $$")
    assert killed.returncode == 128 + signal.SIGTERM
    assert run_phalanx(cluster, "exec", task, "--", "no-such-program").returncode == 127
    assert run_phalanx(cluster, "exec", task, "--", "/etc/passwd").returncode == 126
    assert run_phalanx(cluster, "exec", task, "--", "/no/such/file").returncode == 127


def test_standard_input_is_passed_on_unless_that_is_unwanted(cluster: RealCluster, task: str):
    with_it = run_phalanx(cluster, "exec", task, "--", "wc", "-c", stdin=b"12345")
    assert (with_it.returncode, with_it.stdout.strip()) == (0, b"5")
    without = run_phalanx(cluster, "exec", task, "-I", "--", "wc", "-c", stdin=b"12345")
    assert without.stdout.strip() == b"0"


def test_a_hundred_megabytes_go_through_both_ways(cluster: RealCluster, task: str, tmp_path: Path):
    block = os.urandom(MEBIBYTE)
    wanted = hashlib.sha256(block * 100).hexdigest()
    source = tmp_path / "input"
    source.write_bytes(block * 100)
    with source.open("rb") as given:
        up = subprocess.run(
            phalanx_words(cluster, "exec", "-i", task, "--", "sha256sum"),
            stdin=given,
            env=command_environment(cluster),
            capture_output=True,
            timeout=120,
            check=True,
        )
    assert up.stdout.split()[0].decode() == wanted
    down = run_phalanx(cluster, "exec", task, "--", "cat", str(source), within_s=120)
    assert hashlib.sha256(down.stdout).hexdigest() == wanted
    assert down.stderr == b""


def test_a_slow_reader_stops_the_command_and_memory_stays_bounded(
    cluster: RealCluster, task: str, tmp_path: Path
):
    """A gigabyte is offered; of it no more comes out of the command than what pipes and buffers hold."""
    written = tmp_path / "written"
    script = f"i=0; while head -c 1048576 /dev/zero; do i=$((i+1)); echo $i >{written}; done"
    before = {name: memory_of(cluster, name) for name in ("coordinator", "n1")}
    reader = subprocess.Popen(
        phalanx_words(cluster, "exec", task, "--", "sh", "-c", script),
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=command_environment(cluster),
    )
    try:
        standing: list[int] = []

        def stands_still() -> bool:
            standing.append(int(written.read_text() or 0) if written.exists() else 0)
            return len(standing) > 100 and standing[-1] > 0 and standing[-1] == standing[-100]

        wait_until(stands_still, 30, "the command stands still")
        assert standing[-1] < 64
        grown = {name: memory_of(cluster, name) - size for name, size in before.items()}
        assert all(size < 32 * MEBIBYTE for size in grown.values()), grown
        assert memory_of_process(reader.pid) < 200 * MEBIBYTE
        assert reader.stdout is not None
        reader.stdout.read(4 * MEBIBYTE)
        wait_until(lambda: int(written.read_text() or 0) > standing[-1], 30, "the command goes on")
    finally:
        reader.kill()
        reader.wait(10)
        assert reader.stdout is not None
        reader.stdout.close()


def memory_of(cluster: RealCluster, name: str) -> int:
    return memory_of_process(cluster.processes[name].pid)


def memory_of_process(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def test_a_terminal_has_a_size_that_follows_and_ctrl_c_is_for_the_command(cluster: RealCluster, task: str):
    with a_terminal(cluster, "exec", "-t", task, "--", "sh", rows=33, columns=101) as terminal:
        terminal.expect(r"[#$] ")
        assert terminal.is_raw()
        terminal.type("stty size; echo $TERM; tty\n")
        terminal.expect(r"33 101\r\n")
        terminal.expect(r"xterm-256color\r\n")
        terminal.expect(r"/dev/pts/\d+\r\n")
        terminal.resize(40, 120)
        terminal.type("while [ \"$(stty size)\" != '40 120' ]; do :; done; echo $((1000+24))\n")
        terminal.expect("1024")
        terminal.type("echo $((2000+48)); sleep 1000\n")
        terminal.expect("2048")
        terminal.type(b"\x03")
        terminal.expect(r"\^C")
        terminal.type("echo still $((40+2))\n")
        terminal.expect(r"still 42\r\n")
        terminal.type("exit 9\n")
        assert terminal.exit_code() == 9


def test_ctrl_c_without_a_terminal_is_a_signal_for_the_command(cluster: RealCluster, task: str):
    script = "trap 'echo caught; exit 5' INT; echo up; while :; do sleep 0.1; done"
    process = subprocess.Popen(
        phalanx_words(cluster, "exec", task, "--", "sh", "-c", script),
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=command_environment(cluster),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    assert (process.returncode, out) == (5, b"caught\n")


def test_a_second_ctrl_c_leaves_a_command_that_does_not_listen(
    cluster: RealCluster, task: str, tmp_path: Path
):
    script = f"trap 'echo no' INT; echo $$ >{tmp_path}/pid; echo up; while :; do sleep 0.1; done"
    process = subprocess.Popen(
        phalanx_words(cluster, "exec", task, "--", "sh", "-c", script),
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=command_environment(cluster),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == b"no\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert process.returncode == 130
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not is_alive(pid), what="the command is gone")


def test_keys_leave_a_terminal_and_its_command_is_told_to_hang_up(
    cluster: RealCluster, task: str, tmp_path: Path
):
    with a_terminal(cluster, "exec", "-t", task, "--", "sh") as terminal:
        terminal.expect(r"[#$] ")
        terminal.type(f"echo $$ >{tmp_path}/pid; echo $((1000+24))\n")
        terminal.expect("1024")
        shell = int((tmp_path / "pid").read_text())
        terminal.type(b"\x1d")
        assert terminal.exit_code() == 0
        terminal.expect(r"left ")
        assert not terminal.is_raw()
    wait_until(lambda: not is_alive(shell), what="the shell is gone")


def test_a_client_that_is_killed_leaves_no_command_behind(cluster: RealCluster, task: str, tmp_path: Path):
    script = f"trap '' HUP TERM; (trap '' HUP; exec sleep 999) & echo $! $$ >{tmp_path}/pids; wait"
    process = subprocess.Popen(
        phalanx_words(cluster, "exec", task, "--", "sh", "-c", script),
        stdout=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        env=command_environment(cluster),
    )
    wait_until(
        lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").read_text().strip(), what="it runs"
    )
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    process.kill()
    process.wait(10)
    wait_until(lambda: not any(map(is_alive, pids)), what="all of its processes are gone")
    assert cluster.client.task(task).status == "Running"


def test_a_command_ends_with_its_task(cluster: RealCluster):
    id = a_task(cluster)
    process = subprocess.Popen(
        phalanx_words(
            cluster, "exec", id, "--", "sh", "-c", "trap '' TERM HUP; echo up; while :; do sleep 1; done"
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=command_environment(cluster),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    cluster.client.cancel(id)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGKILL
    assert b"has ended" in err


def test_without_cgroups_a_command_ends_with_its_task_as_well(cluster: RealCluster):
    cluster.node_settings["n2"] = {"runner.cgroups": "memory"}
    cluster.start_runner("n2", "cpus=2,ram=1GiB")
    cluster.wait_online("n2")
    id = a_task(cluster, targets=["n2"])
    script = "trap '' TERM HUP; cat /proc/self/cgroup; (trap '' HUP TERM; exec sleep 999) & echo $!; wait"
    with cluster.client.exec_session(id, ["sh", "-c", script]) as session:
        found = b""
        while not found.rstrip().rpartition(b"\n")[2].isdigit():
            found += (session.read() or ("", b""))[1]
        assert b"slot-" not in found
        child = int(found.split()[-1])
        cluster.client.cancel(id)
        assert session.wait() == 128 + signal.SIGKILL
    wait_until(lambda: not is_alive(child), what="all of its processes are gone")


def test_attach_opens_a_shell_and_reads_a_pipe_as_well(cluster: RealCluster, task: str):
    with a_terminal(cluster, "attach", task) as terminal:
        terminal.expect(r"[#$] ")
        terminal.type("echo $COLOUR; exit\n")
        terminal.expect(r"dark red\r\n")
        assert terminal.exit_code() == 0
    piped = run_phalanx(cluster, "attach", task, "-s", "/bin/sh", stdin=b"echo $((6*7))\nexit 4\n")
    assert (piped.returncode, piped.stdout) == (4, b"42\n")


def test_what_cannot_be_entered_is_said_with_its_state_and_what_to_do(cluster: RealCluster, task: str):
    assert len(cluster.client.task(task).devices) == 2  # which the next one waits for
    waiting = cluster.client.submit(command=["true"], gpus=4).task_ids[0]
    assert cluster.client.task(waiting).status == "Pending"
    with pytest.raises(Conflict, match="Pending") as pending:
        cluster.client.exec(waiting, ["true"])
    number = cluster.client.job(waiting).number
    assert (pending.value.reason, pending.value.hint) == ("TaskNotRunning", f"phalanx why {number}")
    cluster.client.cancel(waiting)
    with pytest.raises(Conflict, match="has ended"):
        cluster.client.exec(waiting, ["true"])
    refused = run_phalanx(cluster, "exec", waiting, "--", "true")
    assert refused.returncode == 6
    assert b"has ended" in refused.stderr
    paused = a_task(cluster)
    cluster.client.pause(paused)
    with pytest.raises(Conflict, match="paused") as frozen:
        cluster.client.exec(paused, ["true"])
    assert (frozen.value.reason, frozen.value.hint) == (
        "TaskPaused",
        f"phalanx resume {cluster.client.job(paused).number}",
    )
    cluster.client.cancel(paused)
    with pytest.raises(NotFound, match="no job"):
        cluster.client.exec("01kx00000000000000000000zz", ["true"])
    with pytest.raises(BadRequest, match="zero byte"):
        cluster.client.exec(waiting, ["a\0b"])


def test_a_task_of_an_array_is_named_by_its_index_and_a_member_of_a_gang_by_its_rank(cluster: RealCluster):
    array = cluster.client.submit(command=["sleep", "1000"], array="3-4", cores=1).task_ids[0]
    cluster.wait_task(f"{array}.4", "Running")
    with pytest.raises(BadRequest, match="2 tasks") as unnamed:
        cluster.client.exec(array, ["true"])
    assert unnamed.value.reason == "IsArray"
    shown = cluster.client.exec(f"{array}.4", ["sh", "-c", "echo $PHALANX_ARRAY_INDEX"]).stdout
    assert shown == b"4\n"
    gang = cluster.client.gang(["sleep", "1000"], 2, cores=1).task_ids[0]
    cluster.wait_task(f"{gang}.1", "Running")
    for rank in (0, 1):
        done = run_phalanx(cluster, "exec", gang, "--rank", str(rank), "--", "sh", "-c", "echo $PHALANX_RANK")
        assert done.stdout.strip() == str(rank).encode()
    with pytest.raises(NotFound, match="no rank 5"):
        cluster.client.exec(gang, ["true"], rank=5)
    for id in (array, gang):
        cluster.client.cancel(id)


def test_the_audit_names_the_command_without_its_values(cluster: RealCluster, task: str):
    cluster.client.exec(task, ["true", "--password=hunter2", "-phunter2", "hunter2"])
    line = next(each for each in reversed(cluster.client.audit()) if each.route.endswith("/exec"))
    assert (line.id, line.status, line.what) == (task, 201, "true --password -p …")
    written = [path.read_bytes() for path in (cluster.folder / "coordinator").rglob("*") if path.is_file()]
    assert not any(b"hunter2" in content for content in written)


def test_output_over_the_limit_is_refused_and_the_async_client_does_the_same(cluster: RealCluster, task: str):
    with pytest.raises(TooLarge):
        cluster.client.exec(task, ["head", "-c", "5000", "/dev/zero"], output_bytes_max=4000)

    async def ask() -> tuple[int, bytes, list[bytes]]:
        async with phalanx.AsyncClient(cluster.address("coordinator"), cluster.user_token) as client:
            done = await client.exec(task, ["tr", "a-z", "A-Z"], input=b"quiet")
            async with await client.exec_session(task, ["cat"], stdin=True) as session:
                await session.write(b"one")
                pieces = [(await session.read() or ("", b""))[1]]
                await session.end_input()
                assert await session.wait() == 0
            return done.exit_code, done.stdout, pieces

    assert asyncio.run(ask()) == (0, b"QUIET", [b"one"])


def test_a_foreign_user_is_refused_and_an_operator_is_not(cluster: RealCluster, task: str):
    tokens = {
        role: cluster.client.create_token(phalanx.TokenRequest(name=f"a-{role}", role=role)).token
        for role in ("user", "operator", "viewer")
    }
    address = cluster.address("coordinator")
    with phalanx.Client(address, tokens["user"]) as foreign:
        with pytest.raises(Forbidden, match="run commands in"):
            foreign.exec(task, ["true"])
        with pytest.raises(Forbidden):
            foreign.forward_session(task, 80)
    with phalanx.Client(address, tokens["viewer"]) as viewer, pytest.raises(Forbidden):
        viewer.exec(task, ["true"])
    with phalanx.Client(address, tokens["operator"]) as operator:
        assert operator.exec(task, ["true"]).exit_code == 0


def test_a_ticket_is_used_up_by_one_session_and_no_other_user_may_use_it(cluster: RealCluster, task: str):
    from phalanx.client.session_calls import exec_request
    from phalanx.client.sessions import run_to_the_end

    request = exec_request(["true"], tty=False, stdin=False, size=(0, 0), term="", rank=None)
    access = cluster.client.session_access()
    ticket = cluster.client.exec_ticket(task, request)
    assert ticket.expires_in_s == 30.0
    other = cluster.client.create_token(phalanx.TokenRequest(name="eve", role="operator")).token
    with pytest.raises(Forbidden) as foreign:
        run_to_the_end(access._replace(token=other), ticket, b"", 100)
    assert foreign.value.reason == "TicketRefused"
    assert run_to_the_end(access, ticket, b"", 100).exit_code == 0
    with pytest.raises(Forbidden) as used:
        run_to_the_end(access, ticket, b"", 100)
    assert used.value.reason == "TicketRefused"


def test_a_cluster_in_this_process_has_sessions_too():
    with phalanx.local() as local:
        id = local.submit(command=["sleep", "1000"], env={"COLOUR": "blue"}).task_ids[0]
        wait_until(lambda: local.task(id).status == "Running", what="the task runs")
        done = local.exec(id, ["sh", "-c", "echo $COLOUR; cat"], input=b"x" * (1 << 20))
        assert (done.exit_code, done.stdout) == (0, b"blue\n" + b"x" * (1 << 20))
