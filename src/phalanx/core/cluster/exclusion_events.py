"""Decided facts about nodes that are excluded for a while after failures; see `events.py`."""

from __future__ import annotations

from phalanx.core.cluster.event_kinds import NodeEvent


class _Excluded(NodeEvent, frozen=True):
    failures: int
    until: float


class NodeExcluded(_Excluded, frozen=True, kw_only=True, tag="NodeRested"):
    """The node gets no new work for a while: it failed itself, or so many failures were reported in a row.

    Logs have it under the name it had first.
    """

    text: str = ""  # what it did wrong itself; nothing if tasks failed


class NodeRecovered(NodeEvent, frozen=True):
    """The exclusion is over: its time has passed, a task did well there, or a user said so."""
