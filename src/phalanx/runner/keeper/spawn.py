"""Spawning: from a start request to a process, or to a refusal a person can read.

posix_spawn never copies the keeper and costs a third of fork. It knows no working directory, CPU set or
cgroup for the child, so the keeper takes them on for the moment of the spawn: it has a single thread, and
nobody else sees it. Log files are opened by the child, which then writes them without any pipe: they stay
complete whatever happens to the keeper or the runner.
"""

from __future__ import annotations

import errno
import os
import signal

from . import clock
from .attempt import Attempt
from .cgroup import Homes, oom_kills

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .attempt import Options

KEY_VARIABLE = "PHALANX_ATTEMPT_KEY"
KEEPER_VARIABLE = "PHALANX_KEEPER"
PROGRAMS_MAX = 1000
_LOG_FLAGS = os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW
_STDIN = (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)
_NOT_EXECUTABLE = (errno.EACCES, errno.ENOEXEC, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ELIBBAD)


class Refused(Exception):
    """An attempt that was not started: a code for programs, a message for people."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(message)


class Brief:
    """What many attempts of one job share."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.argv: list[str] = [*content["argv"]]
        self.env: dict[str, str] = {**content["env"]}
        self.cwd: str | None = content.get("cwd")


class Spawner:
    """Starts attempts. `mark` goes into their environment, for a later keeper to know them by."""

    def __init__(self, mark: str) -> None:
        self.briefs: dict[str, Brief] = {}
        self._mark = mark
        self._homes = Homes()
        self._folder = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
        self._cpus = os.sched_getaffinity(0)
        self._programs: dict[tuple[str, str], str] = {}
        # Python ignores some signals, the shell that started the runner perhaps others; a task starts clean.
        self._ignored = [int(s) for s in signal.valid_signals() if signal.getsignal(s) is signal.SIG_IGN]

    def start(self, key: str, brief_id: str, options: Options) -> Attempt:
        """Spawn the attempt, or raise Refused."""
        brief = self.briefs.get(brief_id)
        if brief is None:
            raise Refused("no_brief", f"the keeper was not given the brief {brief_id!r}")
        attempt = Attempt(key, options)  # all that can be wrong with it is found before there is a process
        argv = options.get("argv") or brief.argv
        env = {**brief.env, **(options.get("env") or {}), KEY_VARIABLE: key, KEEPER_VARIABLE: self._mark}
        attempt.oom_kills_before = oom_kills(attempt.cgroups) if attempt.cgroups else 0
        attempt.started_at = clock.wall()
        tick = clock.tick()
        cpus = options.get("cpus")
        if brief.cwd or cpus or attempt.cgroups:
            attempt.pid = self._spawn_there(attempt, argv, env, brief.cwd, cpus)
        else:
            attempt.pid = self._spawn_here(attempt, argv, env)
        attempt.born = (tick, clock.tick())
        return attempt

    def _spawn_there(
        self, attempt: Attempt, argv: list[str], env: dict[str, str], cwd: str | None, cpus: list[int] | None
    ) -> int:
        """Spawn from the task's own place: its folder, its CPUs, its cgroups. Then come back."""
        entered: list[str] = []
        try:
            if cwd:
                _go_to(cwd)
            if cpus:
                _use_cpus(cpus)
            for cgroup in attempt.cgroups:
                self._enter(cgroup)
                entered.append(cgroup)
            return self._spawn_here(attempt, argv, env)
        finally:
            for cgroup in entered:
                self._homes.leave(cgroup)
            if cpus:
                os.sched_setaffinity(0, self._cpus)
            if cwd:
                os.fchdir(self._folder)

    def _spawn_here(self, attempt: Attempt, argv: list[str], env: dict[str, str]) -> int:
        program = argv[0] if "/" in argv[0] else self._program(argv[0], env.get("PATH") or os.defpath)
        files = (
            _STDIN,
            (os.POSIX_SPAWN_OPEN, 1, attempt.out, _LOG_FLAGS, 0o600),
            (os.POSIX_SPAWN_OPEN, 2, attempt.err, _LOG_FLAGS, 0o600),
        )
        try:
            return os.posix_spawn(
                program, argv, env, file_actions=files, setsid=True, setsigmask=(), setsigdef=self._ignored
            )
        except OSError as error:
            raise _refusal(error, program, attempt.out, attempt.err) from None

    def _enter(self, cgroup: str) -> None:
        try:
            self._homes.enter(cgroup)
        except OSError as error:
            raise Refused("spawn_failed", f"cannot enter the cgroup {cgroup}: {error.strerror}") from None

    def _program(self, name: str, path: str) -> str:
        """The file to run, looked up in the task's own PATH as a shell would."""
        found = self._programs.get((name, path))
        if found is None or not os.access(found, os.X_OK):
            found = _search(name, path)
            if len(self._programs) >= PROGRAMS_MAX:
                self._programs.clear()
            self._programs[name, path] = found
        return found


def _search(name: str, path: str) -> str:
    seen = None
    for folder in path.split(":"):
        candidate = f"{folder}/{name}"
        # An empty or relative entry would mean the working directory, which others may write to.
        if not folder.startswith("/") or os.access(f"{candidate}/.", os.F_OK):
            continue
        if os.access(candidate, os.X_OK):
            return candidate
        if os.access(candidate, os.F_OK):
            seen = candidate
    if seen is not None:
        raise Refused("not_executable", f"{seen} is not executable")
    raise Refused("not_found", f"no program {name!r} in PATH {path}")


def _go_to(cwd: str) -> None:
    try:
        os.chdir(cwd)
    except OSError as error:
        raise Refused("no_cwd", f"working directory {cwd}: {error.strerror}") from None


def _use_cpus(cpus: list[int]) -> None:
    try:
        os.sched_setaffinity(0, cpus)
    except (OSError, ValueError) as error:
        raise Refused("spawn_failed", f"cannot run on the CPUs {cpus}: {error}") from None


def _refusal(error: OSError, program: str, out: str, err: str) -> Refused:
    """What went wrong: posix_spawn gives one number, whether a log or the program was at fault."""
    for path in (out, err):
        try:
            os.close(os.open(path, _LOG_FLAGS, 0o600))
        except OSError as log_error:
            return Refused("no_log", f"cannot write the log {path}: {log_error.strerror}")
    if error.errno == errno.ENOENT:
        if os.access(program, os.F_OK):
            return Refused("not_executable", f"{program}: its interpreter does not exist")
        return Refused("not_found", f"no program {program}")
    if error.errno in _NOT_EXECUTABLE:
        return Refused("not_executable", f"{program}: {error.strerror}")
    return Refused("spawn_failed", f"{program}: {error.strerror}")
