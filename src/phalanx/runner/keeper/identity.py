"""Another account's view of the files: taken on for a moment, to find out what a task of that account may do.

Only the identity for files changes (fsuid, fsgid, groups). Real and effective ids stay ours, so that no process of the
account can signal the keeper meanwhile.
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


class FileIdentity:
    """Whose rights the keeper has when it opens files."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._groups = os.getgroups()

    def of(self, account: KeptAccount | None, effect: Callable[[], T]) -> T:
        """Call `effect` with an account's rights to files, or with our own; raises OSError."""
        if account is None:
            return effect()
        try:
            os.setgroups(account.groups)
            self._libc.setfsgid(account.gid)
            self._libc.setfsuid(account.uid)
            return effect()
        finally:
            self._libc.setfsuid(os.geteuid())
            self._libc.setfsgid(os.getegid())
            os.setgroups(self._groups)
