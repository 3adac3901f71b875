"""The keys by which a keeper knows attempts and briefs."""

from __future__ import annotations

from phalanx.core.model.orders import AttemptKey, key_from_text
from phalanx.logger import logger

log = logger("runner")


def read_key(name: str) -> tuple[AttemptKey, int] | None:
    """The attempt of a keeper's key, and its lane; None for an invalid key."""
    text, _, lane = name.rpartition("/")
    try:
        return key_from_text(text), int(lane)
    except ValueError:
        log.error("the keeper lists an invalid key", key=name[:80])
        return None


def brief_id(job: str, group: int) -> str:
    return f"{job}/{group}"
