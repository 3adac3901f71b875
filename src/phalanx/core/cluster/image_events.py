"""Decided facts about images that runners get ready; see `events.py`."""

from __future__ import annotations

from phalanx.core.cluster.event_kinds import AttemptEvent


class AttemptPreparing(AttemptEvent, frozen=True):
    """Its runner gets its image ready. It holds its grant, and is not given up for not having started."""


class AttemptPrepared(AttemptEvent, frozen=True):
    """Its image is ready: from now on it has as long to start as any other."""
