"""Events of workflows. That a stage became a job is in that job's `JobSubmitted`, which names its workflow."""

from __future__ import annotations

from msgspec import Struct

from phalanx.core.cluster.event_kinds import Recorded, WorkflowEvent
from phalanx.core.model.job import JobId
from phalanx.core.model.orders import Status
from phalanx.core.model.workflow import Workflow


class StageEnd(Struct, frozen=True, array_like=True):
    """How one stage ended."""

    stage: int
    name: str
    status: Status
    parent: int | None = None  # the stage that it builds on and that did not complete, so that it never ran
    text: str = ""  # why, where its job does not say
    skipped: bool = False  # its condition did not hold


class _NewWorkflow(Recorded, frozen=True):
    content: Workflow
    request_id: str = ""
    own_job = None

    @property
    def jobs(self) -> tuple[JobId, ...]:
        return (self.content.id,)


class WorkflowSubmitted(_NewWorkflow, frozen=True, kw_only=True):
    number: int = 0  # by arrival, with jobs; 0: of an older version, which gave none
    unapproved: bool = False  # its stages wait for an approval where their queue asks for it


class StagesEnded(WorkflowEvent, frozen=True):
    """These stages have ended; those that build on them may begin, or never will and are among them."""

    ends: tuple[StageEnd, ...]


class InputsAwaited(WorkflowEvent, frozen=True):
    """Volatile: these stages cannot begin before values were fetched for them from the place for files."""

    stages: tuple[int, ...]
    trouble: str = ""  # why it takes longer


class WorkflowCancelled(WorkflowEvent, frozen=True):
    """No further stage begins. The jobs of those that have begun are cancelled by events of their own."""

    by: str = ""  # the user who asked for it


class WorkflowStopped(WorkflowEvent, frozen=True):
    """A limit was reached. Events of their own end stages that have not begun, and cancel the jobs of the others."""

    text: str  # which limit, in words


class WorkflowRetried(WorkflowEvent, frozen=True):
    """These stages run once more, as new jobs; the results of all others are kept."""

    stages: tuple[int, ...]
    deadline_at: float | None = None  # instead of the one before; None: as it was
    budget: float | None = None


class WorkflowForgotten(WorkflowEvent, frozen=True):
    """An ended workflow left memory for the history."""
