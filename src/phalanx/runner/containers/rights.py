"""Another account's rights to files, for one thread and a moment: what a user names is opened as that user.

No capability is in effect meanwhile: with one of them /proc/PID/cwd of another user's process could be opened. The
system calls are made directly: those of the C library would change every thread of the runner.
"""

from __future__ import annotations

import contextlib
import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_CAPABILITY_VERSION = 0x20080522
_Words = ctypes.c_uint32 * 6  # effective, permitted, inheritable; twice, for 64 capabilities
_SETGROUPS = {"x86_64": 116, "aarch64": 159, "riscv64": 159, "ppc64le": 81, "s390x": 206}


@contextlib.contextmanager
def files_as(account: tuple[int, int, Sequence[int]] | None) -> Iterator[None]:
    """Open files with the rights of an account (uid, gid, groups); with our own for None. Raises OSError."""
    if account is None or os.geteuid() != 0:
        yield
        return
    uid, gid, groups = account
    libc, own = ctypes.CDLL(None, use_errno=True), os.getgroups()
    capabilities = _capabilities(libc, "capget", _Words())
    _, permitted, inheritable, _, more_permitted, more_inheritable = capabilities
    try:
        _set_groups(libc, groups)
        libc.setfsgid(gid)
        libc.setfsuid(uid)
        _capabilities(libc, "capset", _Words(0, permitted, inheritable, 0, more_permitted, more_inheritable))
        yield
    finally:
        _capabilities(libc, "capset", capabilities)
        libc.setfsuid(os.geteuid())
        libc.setfsgid(os.getegid())
        _set_groups(libc, own)


def _capabilities(
    libc: ctypes.CDLL, name: str, words: ctypes.Array[ctypes.c_uint32]
) -> ctypes.Array[ctypes.c_uint32]:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    if getattr(libc, name)(header, words) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return words


def _set_groups(libc: ctypes.CDLL, groups: Sequence[int]) -> None:
    number = _SETGROUPS.get(os.uname().machine)
    if number is None:
        raise OSError(38, f"accounts in containers are not possible on {os.uname().machine}")
    array = (ctypes.c_uint * len(groups))(*groups)
    if libc.syscall(number, len(groups), array) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
