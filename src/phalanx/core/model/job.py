"""What a user submits: one job, whose tasks share a command, a request and a policy.

A `Job` is immutable. What happens to it (attempts, exit codes) is kept in `core/cluster/jobs.py`.
"""

from __future__ import annotations

from msgspec import Struct

from phalanx.core.model.array import Array
from phalanx.core.model.ids import JobId
from phalanx.core.model.resources import Request

PRIORITY_MAX = 1_000_000
RETRIES_MAX = 1000


class Command(Struct, frozen=True, omit_defaults=True):
    """What a task runs. `argv` is given to the kernel as it is; a shell runs only if it is named in argv."""

    argv: tuple[str, ...]
    env: dict[str, str] = {}
    cwd: str | None = None


class Job(Struct, frozen=True, omit_defaults=True):
    """A job as accepted. `batch` is the id of the first job made by the same submission."""

    id: JobId
    command: Command
    request: Request
    batch: JobId
    submitted_at: float
    name: str = ""
    queue: str = "default"
    priority: int = 0
    array: Array | None = None
    time_limit_s: float | None = None
    max_retries: int = 3
    grace_s: float = 5.0
    user: str = ""

    @property
    def tasks(self) -> int:
        """How many tasks the job has."""
        return 1 if self.array is None else len(self.array)

    def task_id(self, position: int) -> str:
        """The public id of one task."""
        return self.id if self.array is None else f"{self.id}.{self.array.index(position)}"
