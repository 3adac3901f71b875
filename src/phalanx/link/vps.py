"""What a coordinator asks a runner about snapshots of a VPS, and the answer: over the connection for logs."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from phalanx.core.model.orders import AttemptKey
from phalanx.link.claims import WORD_MAX, wrong_count, wrong_texts

SNAPSHOTS_MAX = 16  # of one VPS
ERROR_MAX = 4096
_SIZE_MAX = 1 << 50
SnapshotAction = Literal["list", "take", "choose", "remove"]


class AskSnapshots(Struct, frozen=True, tag="ask_snapshots"):
    """Do this with the snapshots of a VPS, and list them. `key` is its newest attempt."""

    id: int
    key: AttemptKey
    action: SnapshotAction
    name: str = ""


class VpsSnapshot(Struct, frozen=True):
    """One image of a VPS, on its node."""

    name: str
    taken_at: float
    size_bytes: int
    is_chosen: bool = False  # the next start of the VPS is from this one


class SnapshotsTold(Struct, frozen=True, tag="snapshots_told"):
    """All of them, when it is done; or why it is not."""

    id: int
    snapshots: list[VpsSnapshot] = []
    reason: str = ""
    error: str = ""


def wrong_snapshots(told: SnapshotsTold) -> str:
    """What cannot be true of an answer; empty: nothing."""
    found = [wrong_count("the number of snapshots", len(told.snapshots), 10 * SNAPSHOTS_MAX)]
    found += [wrong_count("snapshots.size_bytes", each.size_bytes, _SIZE_MAX) for each in told.snapshots]
    found += wrong_texts(WORD_MAX, *(("snapshots.name", each.name) for each in told.snapshots))
    found += wrong_texts(ERROR_MAX, ("reason", told.reason), ("error", told.error))
    return next(filter(None, found), "")
