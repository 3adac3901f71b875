"""What a cluster of `phalanx up` looked like last time: how many nodes, their simulated hardware, their labels.

It stands in the state folder, so that a plain `phalanx up` after a `down` gives back the same nodes, and so that others
know which of the runners' folders are `up`'s.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from phalanx.core.model.amounts import plural

FILE = "up.json"
NAMES_MAX = 10_000


class ClusterShape(Struct, frozen=True):
    """The nodes of a cluster on this machine."""

    nodes: int = 1
    pretend: tuple[str, ...] = ()
    labels: str | None = None
    names: tuple[str, ...] = ()  # of all runners that `up` ever started here

    @property
    def is_plain(self) -> bool:
        return self.nodes == 1 and not self.pretend and self.labels is None

    @property
    def told(self) -> str:
        """One line that says what is taken from last time."""
        what = plural(self.nodes, "simulated node" if self.pretend else "node")
        labels = f" with labels {self.labels}" if self.labels else ""
        return f"{what}{labels} as last time; --nodes 1 for this machine alone"


def remembered(folder: Path) -> ClusterShape:
    """The last cluster of a state folder; a plain one if nothing can be read of it."""
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode((folder / FILE).read_bytes(), type=ClusterShape)
    return ClusterShape()


def remember(folder: Path, shape: ClusterShape) -> None:
    """Keep it for the next time. On a full disk what stands there stays."""
    names = dict.fromkeys((*shape.names, *remembered(folder).names))
    kept = msgspec.structs.replace(shape, names=tuple(names)[:NAMES_MAX])
    draft = folder / f".{FILE}.{os.getpid()}"
    try:
        draft.write_bytes(msgspec.json.encode(kept))
        draft.replace(folder / FILE)
    except OSError:
        draft.unlink(missing_ok=True)
