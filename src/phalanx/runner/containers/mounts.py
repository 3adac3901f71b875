"""What of the node a container may see: mounts below the folders that the operator lists, and nothing else.

A source is opened with the rights of the task's account, so nobody sees by a mount what that account could not reach.
What was opened is what is judged: its real path, after all links. The runtime opens the path once more; whether it
found the same file is looked at inside the container, before anything runs there, so a link that is put in place in
between is of no use.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class MountRefused(Exception):
    """A mount that is not allowed, or not possible; the text is for the user."""


def check_source(path: str, allowed: Sequence[str], closed: Sequence[str]) -> tuple[str, int]:
    """The real path of a mount's source and a descriptor of it, which the caller closes. Raises MountRefused."""
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        raise MountRefused(f"mount {path}: {error.strerror}") from None
    try:
        real = os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 (no pathlib here)
        if why := why_not(real, allowed, closed):
            shown = path if real == path else f"{path} (which is {real})"
            raise MountRefused(f"mount {shown}: {why}")
    except BaseException:
        os.close(fd)
        raise
    return real, fd


def open_root(path: str, allowed: Sequence[str], closed: Sequence[str]) -> int:
    """A descriptor of a folder that becomes the root of a container. Raises MountRefused or OSError."""
    real, fd = check_source(path, allowed, closed)
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise MountRefused(f"rootfs {real}: {error.strerror}") from None
    finally:
        os.close(fd)


def check_root(pid: int, rootfs: str) -> None:
    """Raise MountRefused unless the root of a process is made of this folder, which is named by a descriptor."""
    if not rootfs:
        return
    with open(f"/proc/{pid}/mountinfo", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 (no pathlib here)
        roots = [line for line in file if line.split()[4] == "/"]
    options = roots[-1].rpartition(" ")[2].strip().split(",") if roots else []
    if f"lowerdir={rootfs}" not in options:
        raise MountRefused("rootfs: the runtime took another folder than the one that was opened")


def why_not(real: str, allowed: Sequence[str], closed: Sequence[str]) -> str:
    """Why this path may not be mounted; empty if it may."""
    for path in closed:
        if is_below(path, real) or is_below(real, path):
            return "it holds what is the runner's own"
    if any(is_below(real, os.path.realpath(folder)) for folder in allowed):
        return ""
    listed = ", ".join(allowed) or "none"
    return f"it is not below a folder that this node allows (runner.container_mounts: {listed})"


def is_below(path: str, folder: str) -> bool:
    """Whether a path is a folder or in it."""
    return folder in (path, "/") or path.startswith(f"{folder}/")


def check_nested(targets: Sequence[str], sources: Sequence[tuple[str, int]]) -> None:
    """Raise MountRefused for a mount inside a user's whose place is not there: the runtime would make it, as root.

    `sources` are the users' mounts: where each is, and a descriptor of what is there.
    """
    for target in targets:
        around = [each for each in sources if each[0] != target and is_below(target, each[0])]
        if around:
            folder, fd = max(around, key=lambda each: len(each[0]))
            try:
                os.close(_opened_below(fd, target[len(folder) :]))
            except OSError:
                text = (
                    f"it is inside the mount at {folder}, where there is no such place: make it there first"
                )
                raise MountRefused(f"mount at {target}: {text}") from None


def _opened_below(folder: int, path: str) -> int:
    """A descriptor of what is at a path, through no link."""
    at = os.dup(folder)
    for name in filter(None, path.split("/")):
        try:
            below = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
        finally:
            os.close(at)
        at = below
    return at


def check_inside(pid: int, target: str, source_fd: int) -> None:
    """Raise MountRefused unless a process sees at `target` what this descriptor is of."""
    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        at = _opened_below(root, target)
        found, wanted = os.fstat(at), os.fstat(source_fd)
        os.close(at)
    except OSError as error:
        raise MountRefused(f"mount at {target}: {error.strerror}") from None
    finally:
        os.close(root)
    if (found.st_dev, found.st_ino) != (wanted.st_dev, wanted.st_ino):
        raise MountRefused(f"mount at {target}: its source was exchanged, or {target} is a link in the image")
