"""The keys by which a keeper knows attempts and briefs, and what a keeper of an older version cannot be asked for."""

from __future__ import annotations

import errno

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


def of_older_keeper(spaces: dict[str, str]) -> dict[str, str]:
    """A keeper of an older version knows no namespaces: names can be done without, a network cannot."""
    if "net" in spaces:
        raise OSError(
            errno.ENOTSUP, "the keeper of this node is of an older version; stop the runner with its tasks"
        )
    return {}
