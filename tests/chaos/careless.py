"""`phalanx`, with a planted mistake: a coordinator that does not notice when it was replaced.

It believes that its lease holds for ever, and that the store kept whatever it refused. The rig must detect it.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from phalanx.cli.main import main
from phalanx.coordinator.term import Term
from phalanx.store.protocol import StoreError
from phalanx.store.sqlite.store import SqliteStore


def deaf_to_refusals(method: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    async def call(store: Any, epoch: int, *rest: Any) -> None:
        if not epoch:  # no epoch is 0: a question for the current one
            await method(store, epoch, *rest)
            return
        with suppress(StoreError):
            await method(store, epoch, *rest)

    return call


def plant() -> None:
    Term.holds = lambda self, now: True  # type: ignore[method-assign]
    for name in ("renew", "confirm", "append", "save_image", "prune"):
        setattr(SqliteStore, name, deaf_to_refusals(getattr(SqliteStore, name)))


if __name__ == "__main__":
    plant()
    sys.exit(main())
