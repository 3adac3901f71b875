"""The program that enters the surroundings of an attempt, and there becomes a command or connects to a port.

The runner starts it with what `session_environment.py` found out, as JSON in descriptor `--spec`. It has to do this
itself and not the runner: cgroups, namespaces, account and limits are properties of a process. It imports the standard
library only and ends as soon as anything fails, after it has written why to descriptor `--status`: nothing may run
outside the limits of the task. When the command has begun, that descriptor is closed and empty.

Last of all it looks whether the leader of the attempt is still alive. If it is, the cgroup entered was the attempt's;
if not, it may be that of another one by now.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import resource
import select
import signal
import socket
import sys
import termios

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

PR_SET_PDEATHSIG, PR_SET_NO_NEW_PRIVS, PR_CAPBSET_DROP = 1, 38, 24
CONNECT_WITHIN_S = 10.0
NOT_EXECUTABLE, NOT_FOUND = 126, 127  # as a shell
_LOOPBACK = (("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6))


class Failed(Exception):
    """A reason for programs, a message for people, and what a shell would exit with."""

    def __init__(self, reason: str, message: str, code: int = 1) -> None:
        self.content = {"reason": reason, "message": message, "code": code}
        super().__init__(message)


def main(spec_fd: int, status_fd: int) -> None:
    with os.fdopen(spec_fd, "rb") as file:
        spec = json.load(file)
    for fd in (status_fd, spec["leader_fd"]):
        os.set_inheritable(fd, False)
    try:
        enter(spec, status_fd)
        if spec["port"]:
            _connect(spec)
        else:
            _run(spec)
    except Failed as error:
        os.write(status_fd, json.dumps(error.content).encode())
    except OSError as error:
        text = f"cannot enter the task: {error.strerror}{f': {error.filename}' if error.filename else ''}"
        os.write(status_fd, json.dumps({"reason": "CannotEnter", "message": text, "code": 1}).encode())
    os._exit(1)


def enter(spec: dict[str, Any], status_fd: int = -1) -> None:
    """Be where the leader is, with no more rights than it has."""
    libc = ctypes.CDLL(None, use_errno=True)
    _ask(libc, PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != spec["parent"]:
        raise Failed("RunnerLost", "the runner has ended")
    for folder in spec["cgroups"]:
        _write(f"{folder}/cgroup.procs", "0")
    for number, limits in spec["limits"]:
        _limit(number, limits)
    if spec["cpus"]:
        os.sched_setaffinity(0, spec["cpus"])
    if spec["nice"] > 0:
        os.setpriority(os.PRIO_PROCESS, 0, spec["nice"])
    _set_oom_score(spec["oom_score"])
    is_other_pid_namespace = _enter_namespaces(libc, spec)
    _become(libc, spec)
    _go_to(spec["cwd"])
    if is_other_pid_namespace and not spec["port"]:
        _fork(status_fd)
    _ask(libc, PR_SET_PDEATHSIG, signal.SIGKILL)  # which a change of the account takes back
    os.umask(spec["umask"])
    watching = select.poll()
    watching.register(spec["leader_fd"], select.POLLIN)
    if watching.poll(0):
        raise Failed("TaskEnded", "the task has ended")


def _write(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def _ask(libc: Any, option: int, value: int) -> None:
    if libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _limit(number: int, limits: tuple[int, int]) -> None:
    """The same limit as the leader's; a hard limit above our own is not ours to give."""
    soft, hard = limits
    try:
        resource.setrlimit(number, (soft, hard))
    except (ValueError, OSError):
        own = resource.getrlimit(number)[1]
        ceiling = hard if own == resource.RLIM_INFINITY else own
        resource.setrlimit(
            number, (ceiling if soft == resource.RLIM_INFINITY else min(soft, ceiling), ceiling)
        )


def _set_oom_score(score: int) -> None:
    try:
        _write("/proc/self/oom_score_adj", str(score))
    except OSError:  # a lower one than our own needs rights; then the command is the first to go
        return


def _enter_namespaces(libc: Any, spec: dict[str, Any]) -> bool:
    """Enter those that the leader has apart from the runner; whether there is one of pids among them."""
    opened = [
        (name, os.open(f"/proc/{spec['leader']}/ns/{name}", os.O_RDONLY)) for name in spec["namespaces"]
    ]
    for _, fd in opened:
        if libc.setns(fd, 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        os.close(fd)
    return any(name == "pid" for name, _ in opened)


def _become(libc: Any, spec: dict[str, Any]) -> None:
    """Take on the account of the leader; give up what it has given up."""
    uid, gid = spec["uid"], spec["gid"]
    if spec["tty"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        if os.geteuid() == 0 and uid != 0:
            os.fchown(0, uid, -1)
    if os.geteuid() == 0:
        for capability in spec["dropped"]:
            libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
        os.setgroups(spec["groups"])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    elif uid != os.geteuid():
        raise Failed("CannotEnter", f"the runner has no right to become the task's account (uid {uid})")
    if spec["no_new_privileges"]:
        _ask(libc, PR_SET_NO_NEW_PRIVS, 1)


def _go_to(cwd: str) -> None:
    """With the rights of the account: a task can put a link in place of its folder that leads to another user's."""
    try:
        os.chdir(cwd)
    except OSError as error:
        os.chdir("/")
        os.write(2, f"phalanx: working directory {cwd}: {error.strerror}; this is /\n".encode())


def _fork(status_fd: int) -> None:
    """Only a child is in another namespace of pids. Its end is passed on.

    The status is closed here: the runner waits for its end, which is that the command has begun.
    """
    pid = os.fork()
    if pid == 0:
        return
    for fd in (0, 1, 2, *((status_fd,) if status_fd >= 0 else ())):
        os.close(fd)
    status = os.waitpid(pid, 0)[1]
    if os.WIFSIGNALED(status):
        signal.signal(os.WTERMSIG(status), signal.SIG_DFL) if os.WTERMSIG(status) != signal.SIGKILL else None
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _run(spec: dict[str, Any]) -> NoReturn:
    argv, env = spec["argv"], spec["env"]
    if not argv:
        shell = env.get("SHELL", "")
        argv = [shell if shell.startswith("/") and os.access(shell, os.X_OK) else "/bin/sh"]
    program = _found(argv[0], env.get("PATH") or os.defpath)
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP) and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        os.execve(program, argv, env)  # noqa: S606 - the user's own command
    except OSError as error:
        if error.errno == errno.ENOENT and os.access(program, os.F_OK):
            raise Failed(
                "NotExecutable", f"{argv[0]}: its interpreter does not exist", NOT_EXECUTABLE
            ) from None
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            raise Failed("CommandNotFound", f"{argv[0]}: command not found", NOT_FOUND) from None
        raise Failed("NotExecutable", f"{argv[0]}: {error.strerror}", NOT_EXECUTABLE) from None


def _found(name: str, path: str) -> str:
    """The program, as a shell finds it."""
    if "/" in name:
        return name
    seen = ""
    for folder in path.split(":"):
        candidate = f"{folder}/{name}"
        # An empty or relative entry would mean the working directory.
        if (
            not folder.startswith("/")
            or not os.access(candidate, os.F_OK)
            or os.access(f"{candidate}/.", os.F_OK)
        ):
            continue
        if os.access(candidate, os.X_OK):
            return candidate
        seen = candidate
    if seen:
        raise Failed("NotExecutable", f"{name}: permission denied", NOT_EXECUTABLE)
    raise Failed("CommandNotFound", f"{name}: command not found", NOT_FOUND)


def _connect(spec: dict[str, Any]) -> NoReturn:
    """Connect to a port of loopback, and give the connection to the runner."""
    last: OSError | None = None
    for host, family in _LOOPBACK:
        try:
            there = socket.socket(family, socket.SOCK_STREAM)
            there.settimeout(CONNECT_WITHIN_S)
            there.connect((host, spec["port"]))
        except OSError as error:
            last = last or error
            continue
        with socket.socket(fileno=spec["hand_over_fd"]) as way:
            socket.send_fds(way, [b"."], [there.fileno()])
        os._exit(0)
    why = "nothing listens there" if isinstance(last, ConnectionRefusedError) else str(last)
    raise Failed("PortRefused", f"port {spec['port']} of the task: {why}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
