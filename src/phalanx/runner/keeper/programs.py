"""The program of an attempt: found in the task's own PATH, checked, and what is wrong with it, told for people."""

from __future__ import annotations

import errno
import os

PROGRAMS_MAX = 1000
EXHAUSTED = (  # perhaps over soon
    errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT,
)  # fmt: skip
_SCRIPT_LINE_MAX = 256  # as much of it as the kernel reads
_NO_INTERPRETER = "{}: its interpreter does not exist"
# Errors that the job itself causes; any other is the node's, which is then excluded for a while.
_NOT_EXECUTABLE = (
    *(errno.EACCES, errno.ENOEXEC, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.ELIBBAD),
    *(errno.E2BIG, errno.EINVAL, errno.ELOOP, errno.ENAMETOOLONG, errno.ETXTBSY),
)


class SpawnRefused(Exception):
    """An attempt that was not started: a code for programs, a message for people."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(message)


class Programs:
    """Where programs were found, by name, PATH and the account that looks for them."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, int], str] = {}

    def find(self, name: str, env: dict[str, str], uid: int = -1) -> str:
        """The file to run, looked up in the task's own PATH as a shell would; raises SpawnRefused."""
        if "/" in name:
            return name
        path = env.get("PATH") or os.defpath
        found = self._found.get((name, path, uid))
        if found is None or not _may_run(found):
            found = _search(name, path)
            if len(self._found) >= PROGRAMS_MAX:
                self._found.clear()
            self._found[name, path, uid] = found
        return found

    def find_checked(self, name: str, env: dict[str, str], uid: int = -1) -> str:
        """The same, checked for what posix_spawn would object to, as far as that is visible from outside."""
        program = self.find(name, env, uid)
        _check(program, called(name))
        return program


def _search(name: str, path: str) -> str:
    seen = None
    for folder in path.split(":"):
        candidate = f"{folder}/{name}"
        # An empty or relative entry would mean the working directory, which others may write to.
        if not folder.startswith("/") or os.access(f"{candidate}/.", os.F_OK):
            continue
        if _may_run(candidate):
            return candidate
        if os.access(candidate, os.F_OK):
            seen = candidate
    if seen is not None:
        raise SpawnRefused("not_executable", f"{called(name)} is not executable")
    raise SpawnRefused("not_found", f"no program {called(name)}")


def _may_run(path: str) -> bool:
    """Whether the account whose identity we have may run it: by the ids for files, not by the real ones."""
    return os.access(path, os.X_OK, effective_ids=True)


def called(name: str) -> str:
    """A program's name for messages: where it was found is a value of the job's environment, which is private."""
    return name if "/" in name else f"{name!r} in its PATH"


def _check(program: str, name: str) -> None:
    if not os.access(program, os.F_OK):
        raise SpawnRefused("not_found", f"no program {name}")
    if os.access(f"{program}/.", os.F_OK) or not _may_run(program):
        raise SpawnRefused("not_executable", f"{name}: {os.strerror(errno.EACCES)}")
    if (interpreter := _interpreter(program)) and not _may_run(interpreter):
        raise SpawnRefused("not_executable", _NO_INTERPRETER.format(name))


def _interpreter(program: str) -> str:
    """The program that a script names in its first line; empty if it is not a script, or cannot be read."""
    try:
        fd = os.open(program, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        line = os.read(fd, _SCRIPT_LINE_MAX).partition(b"\n")[0]
    except OSError:
        return ""
    finally:
        os.close(fd)
    words = line[2:].split() if line.startswith(b"#!") else []
    return os.fsdecode(words[0]) if words else ""


def refusal(error: OSError, program: str, name: str) -> SpawnRefused:
    """Why posix_spawn could not run it."""
    if error.errno == errno.ENOENT:
        if os.access(program, os.F_OK):
            return SpawnRefused("not_executable", _NO_INTERPRETER.format(name))
        return SpawnRefused("not_found", f"no program {name}")
    if error.errno in _NOT_EXECUTABLE:
        return SpawnRefused("not_executable", f"{name}: {error.strerror}")
    if error.errno in EXHAUSTED:
        return SpawnRefused("exhausted", f"the node has no room for another process: {error.strerror}")
    return SpawnRefused("spawn_failed", f"{name}: {error.strerror}")
