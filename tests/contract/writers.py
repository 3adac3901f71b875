"""Small programs that write to a SQLite store and fail: run as `python -m tests.contract.writers`.

Each prints the revision of every batch once it is acknowledged. The tests kill it, fill its disk, or make its folder
read-only, and then compare what was acknowledged with what is stored.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

from phalanx.store.protocol import Batch, History, StoreError
from phalanx.store.sqlite.store import SqliteStore


def a_batch(revision: int, size: int = 40_000) -> Batch:
    """A batch that can be checked: its body repeats its revision."""
    return Batch(revision, (b"%d." % revision) * (size // 4), ("n1", f"j{revision % 3}"))


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


async def append_for_ever(path: Path) -> None:
    store = SqliteStore(path)
    epoch = await store.open_term()
    for revision in count(1):
        await store.append(epoch, a_batch(revision), [History(f"job{revision:06}", b"%d" % revision)])
        say(revision)


async def append_once(path: Path) -> None:
    store = SqliteStore(path)
    epoch = await store.open_term()
    await store.append(epoch, a_batch(epoch), [])
    await store.close()


async def meet_trouble(path: Path, begin: Callable[[], None], end: Callable[[], None]) -> None:
    """Append, then during the failure until refused, then again after it."""
    store = SqliteStore(path)
    epoch = await store.open_term()
    await store.append(epoch, a_batch(1), [])
    begin()
    acknowledged = 1
    try:
        for revision in range(2, 200):
            await store.append(epoch, a_batch(revision), [History(f"job{revision:06}", b"x")])
            acknowledged = revision
    except StoreError as error:
        say("refused", error)
    try:
        await store.save_image(epoch, acknowledged, b"image" * 20_000)
    except StoreError:
        say("image refused")
    seen = await store.load()
    assert [batch.revision for batch in seen.batches] == list(range(1, acknowledged + 1)), "reading goes on"
    end()
    await store.append(epoch, a_batch(acknowledged + 1), [])
    say("acknowledged", acknowledged + 1)
    await store.close()


def small_files(path: Path) -> None:
    """No file may grow beyond 300 kB: writes fail as on a full disk, without a disk of our own."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    asyncio.run(
        meet_trouble(
            path,
            lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, hard)),
            lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard)),
        )
    )


def when_told(path: Path) -> None:
    """The failure begins and ends outside: the test causes it when it reads our line, and answers with a line."""

    def ask(word: str) -> None:
        say(word)
        sys.stdin.readline()

    asyncio.run(meet_trouble(path, lambda: ask("begin"), lambda: ask("end")))


if __name__ == "__main__":
    what, where = sys.argv[1], Path(sys.argv[2])
    match what:
        case "for-ever":
            asyncio.run(append_for_ever(where))
        case "once":
            asyncio.run(append_once(where))
        case "small-files":
            small_files(where)
        case "when-told":
            when_told(where)
