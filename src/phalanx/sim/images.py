"""Images under virtual time: jobs that have one, and runners that get them ready, quickly, slowly or in vain.

Which jobs have images is drawn apart from all else, in some of the runs. A runner that dies while it gets an image
ready leaves nothing behind; a registry may fail once and answer the next time.
"""

from __future__ import annotations

import asyncio
from random import Random

from msgspec import structs

from phalanx.core.model.job import Job
from phalanx.core.model.orders import AttemptKey
from phalanx.core.runner.effects import Prepare
from phalanx.runner.accounts import Account
from phalanx.runner.containers.preparing import Done, ImageFailed

RUNS_SHARE, JOBS_SHARE = 0.25, 0.4
IMAGES = ("quick", "quick", "quick", "flaky", "slow", "broken")
SLOW_S = (20.0, 60.0)  # longer than a lease, and than an attempt may take to start


class ImagesOfJobs:
    """Which jobs of one run have images."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice
        self._are_there = dice.random() < RUNS_SHARE

    def given(self, jobs: list[Job]) -> list[Job]:
        """The same jobs, some of which run in containers."""
        if not self._are_there:
            return jobs
        return [_in_container(self._dice, job) if self._dice.random() < JOBS_SHARE else job for job in jobs]


def _in_container(dice: Random, job: Job) -> Job:
    image = dice.choice(IMAGES)
    groups = tuple(
        structs.replace(group, command=structs.replace(group.command, image=image)) for group in job.groups
    )
    return structs.replace(job, groups=groups)


class SimulatedImages:
    """Gets images ready for one runner, on its event loop."""

    def __init__(self, dice: Random) -> None:
        self._dice = dice
        self._pulls: dict[AttemptKey, asyncio.TimerHandle] = {}
        self._had: set[str] = set()  # those that are on the node are ready at once

    def begin(self, effect: Prepare, account: Account | None, done: Done) -> None:
        key, image = effect.start.key, effect.brief.command.image
        pull_s, fails = self._drawn(image)
        loop = asyncio.get_running_loop()
        self._pulls[key] = loop.call_later(pull_s, self._end, key, image, fails, done)

    def abandon(self, key: AttemptKey) -> None:
        if (pull := self._pulls.pop(key, None)) is not None:
            pull.cancel()

    def told(self) -> list[tuple[AttemptKey, str]]:
        return [(key, "pulling") for key in self._pulls]

    def _drawn(self, image: str) -> tuple[float, bool]:
        """How long it takes, and whether it fails."""
        if image in self._had:
            return 0.0, False
        if image == "slow":
            return self._dice.uniform(*SLOW_S), False
        return self._dice.uniform(0.05, 3.0), image == "broken" or (
            image == "flaky" and self._dice.random() < 0.4
        )

    def _end(self, key: AttemptKey, image: str, fails: bool, done: Done) -> None:
        del self._pulls[key]
        if fails:
            done(key, ImageFailed("bad_image", f"image {image}: the registry does not answer"))
        else:
            self._had.add(image)
            done(key, None)
