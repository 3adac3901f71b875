"""The CDI names of a node's devices: with one, a runtime adds all that a container needs of a device.

A device node alone is not enough for CUDA: the libraries of the driver must be those of the node. A specification of
the Container Device Interface, which the vendor's tool writes (`nvidia-ctk cdi generate`), lists nodes, libraries and
hooks of each device under a name such as `nvidia.com/gpu=0` or `nvidia.com/gpu=GPU-5e…`. The files are read again when
they have changed; what they mean is left to the runtime.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from phalanx.core.model.resources import Device
from phalanx.logger import logger

log = logger("runner")
FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))  # where runtimes look
NONE = "none"
FILE_BYTES_MAX = 4 << 20
FILES_MAX = 100
_SUFFIXES = (".json", ".yaml", ".yml")  # JSON is YAML

Signature = tuple[tuple[str, int, int], ...]


class CdiDevices:
    """The devices of one kind that the specifications of this node list."""

    def __init__(self, kind: str, folders: Iterable[Path] = FOLDERS) -> None:
        self._kind = kind
        self._folders = tuple(folders)
        self._read: tuple[Signature, frozenset[str]] | None = None

    def name_of(self, device: Device) -> str:
        """The name of a device for a runtime: by its UUID, else by its index; empty if there is none."""
        names = self._names()
        for name in (device.uuid, str(device.index)):
            if name and name in names:
                return f"{self._kind}={name}"
        return ""

    def _names(self) -> frozenset[str]:
        if self._kind == NONE:
            return frozenset()
        files = list(self._files())
        signature = tuple((str(path), about.st_mtime_ns, about.st_size) for path, about in files)
        if self._read is None or self._read[0] != signature:
            found = frozenset(name for path, _ in files for name in _names_in(path, self._kind))
            self._read = signature, found
        return self._read[1]

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        for folder in self._folders:
            try:
                paths = sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES)
                yield from ((path, path.stat()) for path in paths[:FILES_MAX])
            except OSError:
                continue


def _names_in(path: Path, kind: str) -> list[str]:
    """The names of one specification; none if it is about something else or cannot be read."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise ValueError(f"it is larger than {FILE_BYTES_MAX} bytes")
        found: Any = yaml.safe_load(path.read_bytes())
        if not isinstance(found, dict) or found.get("kind") != kind:
            return []
        return [str(device["name"]) for device in found["devices"]]
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        log.warning("a CDI specification cannot be read", file=str(path), why=str(error)[:200])
        return []
