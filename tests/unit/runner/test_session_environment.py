"""The surroundings of a leader, read from /proc, and the child that goes there: with real processes."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from phalanx.errors import Conflict, Unavailable
from phalanx.link.session_messages import SessionSpec
from phalanx.runner.keeper import system
from phalanx.runner.session_environment import AttemptLeader, Surroundings, _folder, enter
from phalanx.runner.session_process import BeginFailure, SessionProcess, connect
from tests.support.waiting import wait_until

pytestmark = pytest.mark.anyio
NAME = "j1/0/1/0"
ENV = {"PATH": os.environ["PATH"], "PHALANX_ATTEMPT_KEY": NAME, "ODD": "a=b\nc\udcff"}


class Attempt:
    """A process that stands for an attempt's leader."""

    def __init__(self, *words: str, umask: int = 0o027, cwd: str = "/usr") -> None:
        before = system.tick()
        self.process = subprocess.Popen(
            words or ("sleep", "1000"), env=ENV, cwd=cwd, umask=umask, start_new_session=True
        )
        self.leader = AttemptLeader(self.process.pid, (before, system.tick()), NAME)
        wait_until(
            lambda: Path(f"/proc/{self.process.pid}/cmdline").read_bytes().startswith((b"sleep", b"python"))
        )

    def there(self, cwd: str | None = None) -> Surroundings:
        return enter(self.leader, cwd)


@pytest.fixture
def attempt() -> Iterator[Attempt]:
    made = Attempt()
    yield made
    made.process.kill()
    made.process.wait(10)


async def output(spec: SessionSpec, there: Surroundings) -> tuple[bytes, int]:
    process = await SessionProcess.start(spec, there)
    assert isinstance(process, SessionProcess)
    pieces = []
    while piece := await process.read(1):
        pieces.append(piece)
    code = await process.ended()
    process.close()
    os.close(there.leader_fd)
    return b"".join(pieces), code


async def test_a_command_is_as_the_leader_is(attempt: Attempt):
    resource.prlimit(attempt.process.pid, resource.RLIMIT_CORE, (4096, 4096))
    os.sched_setaffinity(attempt.process.pid, {min(os.sched_getaffinity(0))})
    os.setpriority(os.PRIO_PROCESS, attempt.process.pid, 7)
    script = (
        'pwd; umask; ulimit -c; cd /proc/self; grep Cpus_allowed_list status; nice; printf %s "$ODD"; ls fd'
    )
    out, code = await output(SessionSpec(("sh", "-c", script)), attempt.there())
    folder, umask, core, cpus, nice, rest = out.split(b"\n", 5)
    assert code == 0
    assert (folder, umask, int(core), int(nice)) == (b"/usr", b"0027", 4096 // 512, 7)
    assert cpus.split()[-1] == str(min(os.sched_getaffinity(0))).encode()
    assert rest.startswith(b"a=b\nc\xff")
    assert rest[6:].split() in ([b"0", b"1", b"2", b"3"], [b"0", b"1", b"2"])  # 3 is the folder that ls reads


async def test_the_folder_of_the_job_is_used_and_one_that_is_gone_is_said(attempt: Attempt, tmp_path: Path):
    assert (await output(SessionSpec(("pwd",)), attempt.there(str(tmp_path))))[0] == f"{tmp_path}\n".encode()
    assert (await output(SessionSpec(("pwd",)), attempt.there(str(tmp_path / "gone"))))[0] == b"/\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="another account needs root")
async def test_the_account_of_the_leader_is_taken_on_and_its_rights_are_given_up():
    made = Attempt(
        "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs", "sleep", "1000"
    )
    try:
        script = "id -u; id -g; grep -E 'CapEff|NoNewPrivs' /proc/self/status"
        there = made.there()
        assert (there.uid, there.gid, there.no_new_privileges) == (65534, 65534, True)
        out, _ = await output(SessionSpec(("sh", "-c", script)), there)
        assert out.split() == [b"65534", b"65534", b"CapEff:", b"0" * 16, b"NoNewPrivs:", b"1"]
    finally:
        made.process.kill()
        made.process.wait(10)


def test_a_leader_that_is_not_yet_the_account_of_its_user_is_not_entered(attempt: Attempt):
    leader = attempt.leader
    with pytest.raises(Unavailable) as other:
        enter(AttemptLeader(leader.pid, leader.born, leader.name, os.getuid() + 1))
    assert other.value.reason == "OtherAccount"
    there = enter(AttemptLeader(leader.pid, leader.born, leader.name, os.getuid()))
    assert there.no_new_privileges
    os.close(there.leader_fd)


@pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")
async def test_the_namespaces_of_the_leader_are_entered(tmp_path: Path):
    script = "hostname inside; mount -t tmpfs none /mnt; touch /mnt/here; exec sleep 1000"
    words = (
        "unshare",
        "--uts",
        "--mount",
        "--net",
        "--pid",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
        script,
    )
    process = subprocess.Popen(words, env=ENV, cwd="/", start_new_session=True)  # noqa: ASYNC220
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")

        def sleeping() -> int | None:
            for pid in map(int, children.read_text().split()):
                if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep"):
                    return pid
            return None

        pid = wait_until(sleeping)
        there = enter(AttemptLeader(pid, (0, 0), NAME))
        assert set(there.namespaces) == {"uts", "mnt", "net", "pid"}
        out, code = await output(
            SessionSpec(("sh", "-c", "hostname; ls /mnt; cat /proc/net/dev; exit 6")), there
        )
        assert out.split()[:2] == [b"inside", b"here"]
        assert b"eth0" not in out
        assert code == 6
        there = enter(AttemptLeader(pid, (0, 0), NAME))
        _, code = await output(SessionSpec(("sh", "-c", "kill -TERM $$")), there)
        assert code == -signal.SIGTERM
    finally:
        process.kill()
        process.wait(10)


def test_a_hierarchy_that_is_not_mounted_is_an_error_and_a_part_of_one_is_found():
    mounted = [
        ("/", "/sys/fs/cgroup/cpu", frozenset({"rw", "cpu", "cpuacct"})),
        ("/here", "/cg", frozenset[str]()),
    ]
    assert _folder(frozenset({"cpuacct", "cpu"}), "/a/b", mounted) == "/sys/fs/cgroup/cpu/a/b"
    assert _folder(frozenset(), "/here/a", mounted) == "/cg/a"
    with pytest.raises(Unavailable) as missing:
        _folder(frozenset({"memory"}), "/a", mounted)
    assert missing.value.reason == "CannotEnter"


async def test_a_leader_that_has_ended_or_is_another_process_is_not_entered(attempt: Attempt):
    other = AttemptLeader(attempt.leader.pid, (1, 2), NAME)
    with pytest.raises(Conflict) as another:
        enter(other)
    assert another.value.reason == "TaskEnded"
    there = attempt.there()
    attempt.process.kill()  # it is a zombie now: nobody has waited for it
    with pytest.raises(Conflict):
        await SessionProcess.start(SessionSpec(("true",)), there)
    os.close(there.leader_fd)
    with pytest.raises(Conflict):
        attempt.there()
    attempt.process.wait(10)
    with pytest.raises(Conflict):
        attempt.there()


async def test_what_cannot_be_executed_is_said_as_a_shell_would(attempt: Attempt, tmp_path: Path):
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    expected = {"no-such": 127, "/no/such": 127, "/etc/passwd": 126, str(script): 126, "/tmp": 126}
    for word, code in expected.items():
        there = attempt.there()
        failed = await SessionProcess.start(SessionSpec((word,)), there)
        os.close(there.leader_fd)
        assert isinstance(failed, BeginFailure)
        assert failed.code == code


async def test_an_environment_that_was_overwritten_is_found_at_another_process_of_the_attempt(
    attempt: Attempt,
):
    bare = Attempt("env", "-i", f"PATH={ENV['PATH']}", "sleep", "1000")
    try:
        assert bare.there().env["ODD"] == ENV["ODD"]  # of the other, which has the same account and cgroup
        attempt.process.kill()
        attempt.process.wait(10)
        assert "ODD" not in bare.there().env
    finally:
        bare.process.kill()
        bare.process.wait(10)


async def test_a_port_is_connected_to_from_inside(attempt: Attempt):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        there = attempt.there()
        made = await connect(port, there)
        with made, listening.accept()[0] as other:
            made.sendall(b"hello")
            assert other.recv(10) == b"hello"
    with pytest.raises(Conflict) as refused:
        await connect(port, there)
    assert refused.value.reason == "PortRefused"
    os.close(there.leader_fd)


async def test_killing_ends_everything_of_its_session(attempt: Attempt):
    there = attempt.there()
    script = "trap '' HUP TERM; sleep 999 & echo $!; wait"
    process = await SessionProcess.start(SessionSpec(("sh", "-c", script)), there)
    assert isinstance(process, SessionProcess)
    child = int(await process.read(1))
    process.hang_up()
    process.kill()
    assert await process.ended() == -signal.SIGKILL
    wait_until(
        lambda: not Path(f"/proc/{child}").exists() or b"Z" in Path(f"/proc/{child}/stat").read_bytes()
    )
    process.close()
    os.close(there.leader_fd)
