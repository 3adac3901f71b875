"""The runner's own small files in its state folder, which tasks can write to.

Nothing that a task puts in place of one can block us (a FIFO), lead us elsewhere (a link), fill our memory or keep us
from starting or stopping (a folder): what is not a regular file is set aside. Callers check the contents.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from phalanx.runner.keeper import system

BYTES_MAX = 64 << 10
_ORIGIN = re.compile(rb"[0-9a-f]{32}")


def read(path: Path) -> bytes:
    """Its content, or the beginning of that; empty if there is nothing to read."""
    return system.read(str(path), BYTES_MAX)


def write(path: Path, content: bytes) -> None:
    """Replace it as a whole; raises OSError."""
    draft = path.with_suffix(f"{path.suffix}.new")
    _remove(draft)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    system.set_aside(str(path), unless=stat.S_ISREG)
    draft.replace(path)


def remove(path: Path) -> None:
    """Remove it; a failure does no harm."""
    with suppress(OSError):
        _remove(path)


def origin(folder: Path) -> str:
    """Our identity over restarts: made once, kept in the state folder; raises OSError."""
    path = folder / "origin"
    fd = system.open_own(str(path), os.O_RDONLY)  # one that we may not read is not replaced
    try:
        found = os.read(fd, BYTES_MAX).strip()
    finally:
        os.close(fd)
    if not _ORIGIN.fullmatch(found):
        found = secrets.token_hex(16).encode()
        write(path, found)
    return found.decode()


def _remove(path: Path) -> None:
    system.set_aside(str(path), unless=lambda mode: not stat.S_ISDIR(mode))
    path.unlink(missing_ok=True)
