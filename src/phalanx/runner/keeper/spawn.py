"""Spawning: from a start request to a process, or to a refusal that a person can read.

posix_spawn never copies the keeper and costs a third of fork. It has no working directory, CPU set or cgroup for the
child, so the keeper takes them on for the moment of the spawn: it has a single thread, so nothing else is affected.
Logs are created by the child, and written by the keeper (`output.py`). They are created anew: an attempt is spawned
once, so an existing file is not its own. Only a held attempt has its logs from the check before, if they are as new.
"""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import stat
import sys

from . import log, system
from .attempt import KeptAttempt
from .cgroup import is_beside
from .entry import Entries, counters
from .identity import FileIdentity
from .inputs import close_input, open_input
from .later import hold_back, set_later
from .namespaces import Namespaces
from .output import close_outputs, open_outputs
from .programs import EXHAUSTED, Programs, SpawnRefused, called, refusal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .attempt import KeptBrief, Options
    from .cgroup import AttemptSlots
    from .files import LeftFiles

    WhyNot = Callable[[], tuple[str, str] | None]  # a code and a message; None if it may start

KEY_VARIABLE = "PHALANX_ATTEMPT_KEY"
KEEPER_VARIABLE = "PHALANX_KEEPER"
DEADLINE_VARIABLE = "PHALANX_DEADLINE"  # known only when it starts, which may be long after it was sent
_AS_TEXT = frozenset(("PATH", KEY_VARIABLE, KEEPER_VARIABLE, DEADLINE_VARIABLE))
_LOG_FLAGS = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND
_STDIN = (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)


class Spawner:
    """Starts attempts, each in its slot. The state folder is put into their environment, for a later keeper."""

    def __init__(self, slots: AttemptSlots, files: LeftFiles) -> None:
        self._mark = slots.mark.state_dir
        self._files = files
        self._slots = slots
        self._homes = Entries()
        self._namespaces = Namespaces()
        self._folder = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
        self._cpus = os.sched_getaffinity(0)
        soft, self._processes_hard = resource.getrlimit(resource.RLIMIT_NPROC)
        self._processes_max = sys.maxsize if soft == resource.RLIM_INFINITY else soft
        self._files_max, self._files_hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._has_many_files = False  # our own limit was raised
        self._programs = Programs()
        self._identity = FileIdentity()
        # Python ignores some signals, the shell that started the runner perhaps others; a task starts with the
        # defaults.
        self._ignored = [int(s) for s in signal.valid_signals() if signal.getsignal(s) is signal.SIG_IGN]

    def start(
        self, key: str, brief: KeptBrief, options: Options, why_not: WhyNot = lambda: None
    ) -> KeptAttempt:
        """Spawn the attempt, or raise SpawnRefused.

        Whether it still may start is checked at the last moment, and once more when it has started: this process may
        have been stopped (SIGSTOP) in between, for longer than the lease. Then it is killed at once, and ends as
        fenced.
        """
        attempt, argv, env, cwd = self._read(key, brief, options)
        spaces = options.get("spaces")
        if spaces and spaces.get("confined") and attempt.account is None:  # an account has no such rights
            argv = self._namespaces.confined(self._checked_program(attempt, argv[0], env), argv)
        attempt.counted_before = counters(attempt.cgroups) if attempt.cgroups else ()
        attempt.started_at = system.wall()
        if limit_s := options.get("limit_s"):
            env[DEADLINE_VARIABLE] = f"{attempt.started_at + limit_s:.3f}"
        tick = system.tick()
        cpus = options.get("cpus")
        processes_max = options.get("processes_max")
        is_apart = bool(attempt.cgroups) and is_beside(attempt.cgroups, brief.cgroups)
        self._make_files(attempt)
        self._slots.take(attempt, "" if is_apart else brief.cgroups)
        try:
            if cwd or cpus or attempt.cgroups or spaces or processes_max:
                attempt.pid = self._there(
                    attempt,
                    cwd,
                    cpus,
                    lambda: self._spawn_in_slot(attempt, argv, env, why_not),
                    spaces,
                    processes_max,
                )
            else:
                attempt.pid = self._spawn_in_slot(attempt, argv, env, why_not)
        finally:
            if not attempt.pid:
                self._slots.give_back(attempt)
                self._files.close(attempt)
                close_input(attempt)
                close_outputs(attempt)
        attempt.born = (tick, system.tick())
        return attempt

    def _make_files(self, attempt: KeptAttempt) -> None:
        try:
            self._files.make(attempt)
        except OSError as error:
            code = "exhausted" if error.errno in EXHAUSTED else "no_log"
            raise SpawnRefused(
                code, f"cannot make the folder {attempt.artifacts}: {error.strerror}"
            ) from None

    def check(self, key: str, brief: KeptBrief, options: Options) -> None:
        """Raise SpawnRefused if the attempt could not be spawned now: check all it needs, in its folder and cgroup."""
        attempt, argv, env, cwd = self._read(key, brief, options)

        def look() -> int:
            _make_logs(attempt)
            self._checked_program(attempt, argv[0], env)
            return 0

        self._there(attempt, cwd, options.get("cpus"), look)

    def _read(
        self, key: str, brief: KeptBrief, options: Options
    ) -> tuple[KeptAttempt, list[str], dict[Any, Any], str | None]:
        """The attempt, its argv, its environment and its folder: errors are found before there is a process."""
        own = options.get("env") or {}
        shared: dict[Any, Any] = brief.env
        if brief.account is None and shared.keys().isdisjoint(own):
            shared = brief.encoded = brief.encoded or _encoded(shared)
        env = {**shared, **own, KEY_VARIABLE: key, KEEPER_VARIABLE: self._mark}
        attempt = KeptAttempt(key, options)
        attempt.account = brief.account
        return attempt, [*(options.get("argv") or brief.argv)], env, brief.cwd

    def _there(
        self,
        attempt: KeptAttempt,
        cwd: str | None,
        cpus: list[int] | None,
        effect: Callable[[], int],
        spaces: dict[str, Any] | None = None,
        processes_max: int | None = None,
    ) -> int:
        """Call `effect` in the task's own folder, CPUs, cgroups and namespaces, then come back."""
        entered: list[str] = []
        is_away = False
        try:
            if cwd:
                self._identity.of(attempt.account, lambda: _go_to(cwd))
            if cpus:
                _use_cpus(cpus)
            for cgroup in attempt.cgroups:
                self._enter(cgroup)
                entered.append(cgroup)
            if spaces:
                self._go_into(spaces)
                is_away = True
            if processes_max:
                self._limit_processes(min(processes_max, self._processes_max))
            return effect()
        finally:
            if processes_max:
                self._limit_processes(self._processes_max)
            if is_away:
                self._namespaces.leave()
            for cgroup in entered:
                self._homes.leave(cgroup)
            if cpus:
                self._use_own_cpus()
            if cwd:
                os.fchdir(self._folder)

    def _limit_processes(self, most: int) -> None:
        """The soft limit of this process, which a child inherits: a task can raise it, which no accident does."""
        soft = resource.RLIM_INFINITY if most == sys.maxsize else most
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, self._processes_hard))

    def _go_into(self, spaces: dict[str, Any]) -> None:
        try:
            self._namespaces.enter(spaces)
        except OSError as error:
            code = "exhausted" if error.errno in EXHAUSTED else "spawn_failed"
            raise SpawnRefused(code, f"cannot enter its namespaces: {error.strerror}") from None

    def _use_own_cpus(self) -> None:
        """If they were taken from us meanwhile, that is not the fault of the attempt."""
        try:
            os.sched_setaffinity(0, self._cpus)
        except OSError as error:
            log.write("cpus", f"cannot go back to the CPUs {sorted(self._cpus)}: {error}")

    def _spawn_in_slot(
        self, attempt: KeptAttempt, argv: list[str], env: dict[str, str], why_not: WhyNot
    ) -> int:
        self._slots.enter(attempt)
        try:
            pid = self._spawn_here(attempt, argv, env, why_not)
            if why_not() is not None:
                os.killpg(pid, signal.SIGKILL)  # it leads a group from its first instruction
                attempt.reason = "fenced"
            return pid
        finally:
            self._slots.leave(attempt)

    def _spawn_here(self, attempt: KeptAttempt, argv: list[str], env: dict[str, str], why_not: WhyNot) -> int:
        account = attempt.account
        name = called(argv[0])
        if account is None:
            program = self._programs.find(argv[0], env)
        else:
            program = self._checked_program(attempt, argv[0], env)
            if account.prefix:  # it is root until the account is taken on
                words, env = set_later(account.prefix[0], program, env)
            else:  # a program of ours, which takes it on by itself
                words, env = [], hold_back(env)
            argv = [*account.prefix, *words, program, *argv[1:]]
            program = argv[0]
            if not attempt.was_held:
                _make_logs(attempt)
        creates = () if (attempt.was_held or account is not None) and _are_as_new(attempt) else attempt.logs

        def spawn() -> int:
            if (no := why_not()) is not None:
                raise SpawnRefused(*no)
            if self._has_many_files:
                resource.setrlimit(resource.RLIMIT_NOFILE, (self._files_max, self._files_hard))
            try:
                return os.posix_spawn(
                    program,
                    argv,
                    env,
                    file_actions=actions,
                    setsid=True,
                    setsigmask=(),
                    setsigdef=self._ignored,
                )
            finally:
                if self._has_many_files:
                    system.allow_many_files()

        opened = self._open_outputs(attempt)
        actions = _file_actions(creates, opened)
        try:
            if attempt.has_input:
                opened.append(open_input(attempt))
                actions = ((os.POSIX_SPAWN_DUP2, opened[-1], 0), *actions[1:])
            try:
                return spawn()
            except FileExistsError:  # only a log gives this error: one that was planted
                _remove_logs(*attempt.logs)
                return spawn()
            except (FileNotFoundError, NotADirectoryError):
                if not _remake_folders(attempt):
                    raise
                return spawn()
        except OSError as error:
            _make_logs(attempt)  # the error number does not say which file it is about
            raise refusal(error, program, name) from None
        finally:
            for fd in opened:
                os.close(fd)

    def _open_outputs(self, attempt: KeptAttempt) -> list[int]:
        """The write ends for the child. What it is given has to have a number below its limit of open files."""
        opened = open_outputs(attempt)
        if self._has_many_files:
            attempt.outputs[:] = [_move_above(self._files_max, fd) for fd in attempt.outputs]
        elif opened[-1] > self._files_max // 2 and self._files_hard > self._files_max:
            system.allow_many_files()
            self._has_many_files = True
        return opened

    def _enter(self, cgroup: str) -> None:
        try:
            self._homes.enter(cgroup)
        except OSError as error:
            code = "exhausted" if error.errno in EXHAUSTED else "spawn_failed"
            raise SpawnRefused(code, f"cannot enter the cgroup {cgroup}: {error.strerror}") from None

    def _checked_program(self, attempt: KeptAttempt, name: str, env: dict[str, str]) -> str:
        """The file to run, if the task's account may run it."""
        # Without a prefix the program is the runner's own, which makes a container for that account.
        account = attempt.account if attempt.account is not None and attempt.account.prefix else None
        uid = -1 if account is None else account.uid
        return self._identity.of(account, lambda: self._programs.find_checked(name, env, uid))


def _encoded(env: dict[str, str]) -> dict[bytes | str, bytes | str]:
    """What many attempts share of their environment, as the kernel gets it. What is looked up or set here is text."""
    return {
        name if name in _AS_TEXT else os.fsencode(name): text if name in _AS_TEXT else os.fsencode(text)
        for name, text in env.items()
    }


def _go_to(cwd: str) -> None:
    try:
        os.chdir(cwd)
    except OSError as error:
        raise SpawnRefused("no_cwd", f"working directory {cwd}: {error.strerror}") from None


def _use_cpus(cpus: list[int]) -> None:
    try:
        os.sched_setaffinity(0, cpus)
    except (OSError, ValueError) as error:
        raise SpawnRefused("spawn_failed", f"cannot run on the CPUs {cpus}: {error}") from None


def _move_above(least: int, fd: int) -> int:
    """The same under a number that is not below this one, if there is any left."""
    try:
        moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, least)
    except OSError:
        return fd
    os.close(fd)
    return moved


def _file_actions(creates: tuple[str, ...], outputs: list[int]) -> tuple[tuple[Any, ...], ...]:
    """The three streams of the child. It creates these logs, too: that is not on the keeper's time."""
    created = [(os.POSIX_SPAWN_OPEN, 1, path, _LOG_FLAGS, 0o600) for path in creates]
    out, err = (os.POSIX_SPAWN_DUP2, outputs[0], 1), (os.POSIX_SPAWN_DUP2, outputs[-1], 2)
    return _STDIN, *created, out, err


def _make_logs(attempt: KeptAttempt) -> None:
    """Create its logs anew, or raise SpawnRefused."""
    for path in attempt.logs:
        try:
            try:
                os.close(os.open(path, _LOG_FLAGS, 0o600))
            except (FileExistsError, FileNotFoundError, NotADirectoryError):
                _remake_folders(attempt)
                _remove_logs(path)
                os.close(os.open(path, _LOG_FLAGS, 0o600))
        except OSError as error:
            raise _no_log(path, error) from None


def _are_as_new(attempt: KeptAttempt) -> bool:
    """Whether its logs exist and nobody has changed them."""
    try:
        found = [os.lstat(path) for path in attempt.logs]
    except OSError:
        return False
    return all((each.st_mode, each.st_size, each.st_nlink) == (stat.S_IFREG | 0o600, 0, 1) for each in found)


def _remake_folders(attempt: KeptAttempt) -> bool:
    """Create the folder of a job's logs, which a task of it may have removed or replaced; False if it existed."""
    made = False
    for folder in {system.parent(path) for path in attempt.logs}:
        try:
            system.set_aside(folder, unless=stat.S_ISDIR)
            os.mkdir(folder, 0o700)  # noqa: PTH102 (the keeper imports no pathlib)
            made = True
        except OSError:  # it exists; or opening the log gives the error
            continue
    return made


def _remove_logs(*paths: str) -> None:
    """Remove what is there, except a device, which no task can have made."""
    for path in paths:
        try:
            if not system.is_device(os.lstat(path).st_mode):
                os.unlink(path)  # noqa: PTH108 (the keeper imports no pathlib)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise _no_log(path, error) from None


def _no_log(path: str, error: OSError) -> SpawnRefused:
    code = "exhausted" if error.errno in EXHAUSTED else "no_log"
    return SpawnRefused(code, f"cannot write the log {path}: {error.strerror}")
