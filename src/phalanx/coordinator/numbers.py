"""The numbers of jobs that ended under an older version, or are in a restored backup: kept in the store, once.

Such a record has its number inside, and the store has no index from there. It is made in the background by whoever
leads; until then those jobs are found by their ids alone. Number 0 says that it is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import MsgspecError

from phalanx.core.cluster.history_image import number_of_job
from phalanx.core.cluster.workflow_image import is_workflow, number_of_workflow
from phalanx.errors import PhalanxError
from phalanx.logger import logger
from phalanx.store.protocol import History, Store, StoreError

log = logger("coordinator")
LOOK_S = 2.0
PAGE = 200
DONE = 0


async def keep_numbers(store: Store, lead: Callable[[], int]) -> None:
    """Number the history as soon as this one leads. `lead` returns the epoch, or raises if it does not."""
    while True:
        try:
            if await number_history(store, lead()):
                return
        except (PhalanxError, StoreError) as error:
            log.debug("the numbers of ended jobs are not all kept yet", error=str(error))
        await asyncio.sleep(LOOK_S)


async def number_history(store: Store, epoch: int) -> bool:
    """Keep the number of every record, page by page; the time between two pages belongs to others."""
    if await store.numbered(DONE) is not None:
        return True
    before, count = None, 0
    while page := await store.past(before, PAGE):
        numbers = {number: record.job for record in page if (number := number_of(record))}
        await store.keep_numbers(epoch, numbers)
        before, count = page[-1].job, count + len(numbers)
        await asyncio.sleep(0)
    await store.keep_numbers(epoch, {DONE: ""})
    if count:
        log.info("the numbers of ended jobs are kept", jobs=count)
    return True


def number_of(record: History) -> int:
    """The number inside a record; 0 if there is none or it cannot be read."""
    try:
        read = number_of_workflow if is_workflow(record.body) else number_of_job
        return read(record.body)
    except (MsgspecError, ValueError):
        return 0
