"""Carries out an operator's choice about a log with a hole: `phalanx store repair`.

The choice becomes an image at the end of the log, so that revisions only grow, nothing is deleted, and every
coordinator starts again from that image. Until it is saved the log has its hole, and nothing is served, so an
interrupted repair can be repeated. Damaged records are set aside.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from phalanx.core.cluster.events import LogRepaired, encode
from phalanx.core.cluster.image import decode_state, encode_state
from phalanx.core.cluster.invariants import check
from phalanx.core.cluster.state import ClusterState, Timers
from phalanx.errors import Conflict
from phalanx.store.contents import epoch_of
from phalanx.store.protocol import Batch, Store, StoreError
from phalanx.store.salvage import Hole, Salvage

Choice = Literal["hold", "to-image"]
BECAUSE = "a damaged record of the store may have held its end"


class Concerned(Struct, frozen=True):
    """A job of which something may be missing, as far as it can be read."""

    job: str
    name: str
    counts: list[int]  # tasks by status: Pending, Assigned, Running, Completed, Failed, Cancelled


class DamageSurvey(Struct, frozen=True):
    """What is wrong with a store, and what each choice would cost."""

    store: str
    epoch: int
    leader: str | None
    revision: int
    holes: list[Hole]
    concerned: list[Concerned]  # they would be held
    gone: list[str]  # nothing can be read of them, whatever is chosen
    forgotten: list[str]  # accepted after the hole: going back to before it forgets them
    again: list[str]  # ended after the hole: going back to before it runs them again

    @property
    def is_good(self) -> bool:
        return not self.holes


class Repaired(Struct, frozen=True):
    """What was done."""

    store: str
    choice: str
    epoch: int
    revision: int
    held: list[str]
    set_aside: list[int]


async def survey(store: Store, name: str) -> DamageSurvey:
    """Read everything and change nothing."""
    salvage = await Salvage.read(store)
    leader = await store.leader()
    forgotten, again = _cost_of_going_back(salvage)
    return DamageSurvey(
        store=name,
        epoch=await epoch_of(store),
        leader=None if leader is None else leader.candidate.name,
        revision=salvage.head,
        holes=salvage.holes,
        concerned=[Concerned(job.job.id, job.job.name, list(job.counts)) for job in salvage.concerned],
        gone=salvage.gone,
        forgotten=forgotten,
        again=again,
    )


async def repair(store: Store, name: str, choice: Choice, now: float) -> Repaired:
    """Carry out a choice. No coordinator may lead; one that starts to lead meanwhile makes this fail without harm."""
    leader = await store.leader()
    if leader is not None:
        raise Conflict(f"coordinator {leader.candidate.name} is active on {name}", hint="stop it first")
    epoch = await store.open_term()
    salvage = await Salvage.read(store)
    if not salvage.holes:
        raise Conflict(f"the log of {name} has no hole: there is nothing to repair")
    concerned = [job.job.id for job in salvage.concerned]
    if choice == "hold":
        state, jobs = salvage.held(BECAUSE), concerned
    else:
        state, jobs = salvage.back(), [id for ids in _cost_of_going_back(salvage) for id in ids]
    revision = state.revision = salvage.head + 1
    state.arrivals = salvage.numbers_given
    image = encode_state(state)
    _require_sound(decode_state(image, Timers()), choice)
    event = LogRepaired(
        at=now, cause="an operator", after=salvage.holes[0].after, choice=choice, jobs=tuple(jobs)
    )
    await store.append(epoch, Batch(revision, encode([event]), tuple(sorted(jobs))), [])
    await store.save_image(epoch, revision, image)
    await store.set_aside(epoch, salvage.damaged)
    if (loaded := await store.load()).image_revision != revision:
        raise StoreError(f"the image at {revision} did not come back: the newest is {loaded.image_revision}")
    return Repaired(name, choice, epoch, revision, concerned if choice == "hold" else [], salvage.damaged)


def _cost_of_going_back(salvage: Salvage) -> tuple[list[str], list[str]]:
    """The jobs that would be forgotten, and those that have ended and would run again."""
    if salvage.before is None:
        return [], []
    then, now = salvage.back(), salvage.state
    forgotten = [id for id in now.jobs if id not in then.jobs]
    again = [
        id
        for id, job in then.jobs.items()
        if not job.is_over and (id not in now.jobs or now.jobs[id].is_over)
    ]
    return forgotten, again


def _require_sound(state: ClusterState, choice: Choice) -> None:
    if broken := check(state):
        other = "give --to-image, or " if choice == "hold" else ""
        raise Conflict(
            f"what can be read does not fit together: {broken[0]}",
            hint=f"{other}restore a backup (`phalanx store restore`)",
        )
