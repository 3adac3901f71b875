"""Python's garbage collector: held still while a whole state is read or encoded, and kept short at all other times.

Reading and encoding make a great many objects at once, none of which is garbage, and the collector would look through
all that lives again and again: with 30,000 jobs four fifths of the time went there.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from contextlib import contextmanager

YOUNG, MIDDLE, OLD = 5_000, 10, 10
LOOK_EVERY_S = 1.0
GROWTH = 3
SMALL = 200_000  # objects; so many are looked through in some milliseconds


@contextmanager
def collector_still() -> Iterator[None]:
    """Within this block, which must not wait, nothing is collected."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


async def keep_short() -> None:
    """Keep collections short while the state grows: what survived a full one is not looked through again.

    The state has no cycles, and a full collection looks at all of it: half a second with some hundred thousand jobs, in
    which nobody is answered. So survivors are set aside (frozen). Garbage among them is found when they have tripled.
    """
    gc.set_threshold(YOUNG, MIDDLE, OLD)
    gc.collect()
    gc.freeze()
    seen, known = _full_collections(), gc.get_freeze_count()
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        if _full_collections() == seen:
            continue
        gc.freeze()
        if gc.get_freeze_count() > GROWTH * known + SMALL:
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            known = gc.get_freeze_count()
        seen = _full_collections()


def _full_collections() -> int:
    return int(gc.get_stats()[2]["collections"])
