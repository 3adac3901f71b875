"""Another account's view of the files: taken on for a moment, to find out what a task of that account may do.

Only the identity for files changes (fsuid, fsgid, groups), and no capability is in effect: with one of them the keeper
could go where the account cannot, such as into /proc/PID/cwd of another user's process. Real and effective ids stay
ours, so that no process of the account can signal the keeper meanwhile.
"""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from .attempt import KeptAccount

    T = TypeVar("T")

_CAPABILITY_VERSION = 0x20080522
_Words = ctypes.c_uint32 * 6  # effective, permitted, inheritable; twice, for 64 capabilities


class FileIdentity:
    """Whose rights the keeper has when it opens files."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._groups = os.getgroups()

    def of(self, account: KeptAccount | None, effect: Callable[[], T]) -> T:
        """Call `effect` with an account's rights to files, or with our own; raises OSError."""
        if account is None:
            return effect()
        own = self._capabilities("capget", _Words())
        try:
            os.setgroups(account.groups)
            self._libc.setfsgid(account.gid)
            self._libc.setfsuid(account.uid)
            self._capabilities("capset", _Words(0, own[1], own[2], 0, own[4], own[5]))
            return effect()
        finally:
            self._capabilities("capset", own)
            self._libc.setfsuid(os.geteuid())
            self._libc.setfsgid(os.getegid())
            os.setgroups(self._groups)

    def _capabilities(self, name: str, words: ctypes.Array[ctypes.c_uint32]) -> ctypes.Array[ctypes.c_uint32]:
        header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
        if getattr(self._libc, name)(header, words) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"{name}: {os.strerror(number)}")
        return words
