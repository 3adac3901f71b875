"""What is told of a gang: how far it has come, who waits at its barrier, for whom others have to leave.

Requests and the other answers are in `api/schema/jobs.py`.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from phalanx.api.schema.jobspec import GatherSpec

PhaseWord = Literal["Pending", "PreScheduling", "Scheduling", "Scheduled", "Running", "Failed", "Finished"]


class FormationView(Struct):
    """Members that are placed and wait for each other. `until` is when all let go if they are not whole."""

    number: int
    formed_at: float
    until: float
    placed: int
    ready: int


class PromiseView(Struct):
    """Places kept for a job until those who were asked to leave have gone."""

    made_at: float
    until: float  # when the promise is withdrawn
    victims: list[str]  # tasks that have yet to leave
    nominated: dict[str, int]  # node: how many members will stand there


class GangView(Struct):
    """What holds the tasks of a job together, and how far they have come. `phase` is that of a PodGroup."""

    phase: PhaseWord
    placed: int  # members that hold a place and will keep it
    needed: int  # of all groups together
    strict: bool
    match: str
    wait_s: float
    gather: list[GatherSpec]
    id: str  # what a manifest calls it
    formations: int  # tries to start whole
    formation: FormationView | None
    promise: PromiseView | None
    members: int | None = None  # of one that waits for members: how many have come


class ConditionView(Struct):
    """Something that is so of a task, in the words of Kubernetes: DisruptionTarget for one that is evicted."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str
    last_transition_at: float
