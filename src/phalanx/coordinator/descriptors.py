"""File descriptors: the limit of this process, raised as far as it may be, and who may use how many of them.

Each connection takes one. Strangers get a part that leaves enough for those who were let in, and a part is kept for
the store, its files and the log.
"""

from __future__ import annotations

import resource
from typing import NamedTuple

from phalanx.logger import logger

log = logger("coordinator")
WANTED = 65_536
LOW = 4096  # with fewer there is not room for everything that the defaults allow
KEPT = 128


class Shares(NamedTuple):
    """How many connections of each kind there may be. Unauthenticated ones are in a handshake or past it."""

    rest_known: int
    rest_unauthenticated: int
    link_known: int
    link_unauthenticated: int
    rpc: int = 0  # where gRPC is served, of runners and clients together


def raise_limit() -> int:
    """Raise the soft limit as far as the hard one lets us; the limit that is in force now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError) as error:
            log.warning(
                "the limit of open files cannot be raised", limit=soft, wanted=wanted, error=str(error)
            )
    limit = WANTED if soft == resource.RLIM_INFINITY else soft
    if limit < LOW:
        room = shares(limit)
        log.warning(
            "few files may be open at once: raise the limit (ulimit -Hn, LimitNOFILE=)",
            limit=limit,
            wanted=LOW,
            clients=room.rest_known,
            runners=room.link_known // 2,
        )
    return limit


def shares(limit: int, *, with_rpc: bool = False) -> Shares:
    """Divide a number of descriptors."""
    usable = max(0, limit - min(KEPT, limit // 8))
    rest_unauthenticated = max(8, min(1024, usable // 10))
    link_unauthenticated = max(8, min(512, usable // 10))
    rest_known = max(8, min(4096, usable // 4))
    link_known = max(
        8, min(20_000, usable - rest_known - 2 * rest_unauthenticated - 2 * link_unauthenticated)
    )
    rpc = link_known // 2 if with_rpc else 0
    return Shares(rest_known, rest_unauthenticated, link_known - rpc, link_unauthenticated, rpc)
