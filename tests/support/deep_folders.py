"""Folders in folders, deeper than a path may be long."""

from __future__ import annotations

import os
from pathlib import Path

DEPTH = 3000  # deeper than Python calls itself


def make_deep(folder: Path, depth: int = DEPTH) -> None:
    """Folders in folders, with a file in the last."""
    at = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=at)
        inner = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=at))
    os.close(at)
