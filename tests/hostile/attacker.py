"""One attacker as a separate process: nothing for a while, each attack for a part of the time, then all at once.

    python -m tests.hostile.attacker user|stranger TARGET-AS-JSON SECONDS [ATTACK]

It prints a line for each attack that begins, with the result of the one before.
"""

from __future__ import annotations

import asyncio
import collections
import json
import resource
import sys
import time

import uvloop

from tests.hostile import stranger, user
from tests.hostile.target import Counts, Target, pause


async def attack(who: str, target: Target, seconds: float, only: str = "") -> None:
    attacks = user.ATTACKS if who == "user" else stranger.ATTACKS
    names = [only] if only else ["nothing", *attacks, "all at once"]
    part_s = seconds / len(names)
    for name in names:
        counts: Counts = collections.Counter()
        until = time.monotonic() + part_s
        _tell(begins=name)
        chosen = [attacks[name]] if name in attacks else list(attacks.values())
        if name == "nothing":
            chosen = [_nothing]
        working = [asyncio.ensure_future(each(target, until, counts)) for each in chosen]
        await asyncio.wait(working, timeout=part_s + 1.0)
        for each in working:
            each.cancel()
        for failed in await asyncio.gather(*working, return_exceptions=True):
            if isinstance(failed, Exception):
                counts[f"{type(failed).__name__} {failed}"[:60]] += 1
        _tell(ended=name, counts=dict(counts))
        await pause(0.0)
    _tell(begins="afterwards")


async def _nothing(target: Target, until: float, counts: Counts) -> None:
    """The baseline for the others."""
    await pause(until - time.monotonic())


def _tell(**fields: object) -> None:
    print(json.dumps(fields), flush=True)  # noqa: T201 - the rig reads it


if __name__ == "__main__":
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    asyncio.run(attack(sys.argv[1], Target(**json.loads(sys.argv[2])), float(sys.argv[3]), *sys.argv[4:]))
