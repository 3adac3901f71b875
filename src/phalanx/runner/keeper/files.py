"""Small files of /proc and /sys, read whole: nothing is there when there is nothing to read."""

from __future__ import annotations

import os


def read(path: str, bytes_max: int = 16 << 20) -> bytes:
    """The file's content, or that much of it; empty when it cannot be read, as who it tells about is gone."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return b""
    parts: list[bytes] = []
    size = 0
    try:
        while size < bytes_max and (part := os.read(fd, 65536)):
            parts.append(part)
            size += len(part)
    except OSError:
        return b""
    finally:
        os.close(fd)
    return b"".join(parts)


def write(path: str, text: bytes) -> None:
    """Write to a control file; raises OSError."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text)
    finally:
        os.close(fd)


def parent(path: str) -> str:
    return path.rpartition("/")[0]
