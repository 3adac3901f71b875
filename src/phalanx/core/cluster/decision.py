"""What `decide` returns, and the answers to commands and reports."""

from __future__ import annotations

from msgspec import Struct

from phalanx.core.cluster.effects import Effect
from phalanx.core.cluster.events import Event
from phalanx.core.model.ids import JobId
from phalanx.core.model.orders import AttemptKey, Disposition
from phalanx.core.model.reason import Reason


class Accepted(Struct, frozen=True):
    """Yes. `count` tasks were concerned, `stopping` of them still have an attempt to be stopped."""

    count: int = 1
    stopping: int = 0


class Refused(Struct, frozen=True):
    """No, and why. `kind` tells HTTP and the shell what sort of no it is."""

    reason: Reason
    kind: str = "conflict"  # never | target | busy | no_room | bad | conflict | not_found | too_many | stale


class Disposed(Struct, frozen=True, gc=False):
    """What became of one report; `epoch` and `generation` are those in force (0: no lease of that node is)."""

    key: AttemptKey
    disposition: Disposition
    epoch: int
    generation: int = 0


class Replayed(Struct, frozen=True):
    """This was asked before, under the same request id; these jobs came of it."""

    jobs: tuple[JobId, ...]


class Unchanged(Struct, frozen=True):
    """The same objects of Kubernetes have been applied before, and this job, which is not over, is of them."""

    job: JobId


Answer = Accepted | Refused | Disposed | Replayed | Unchanged


class Decision(Struct):
    """Facts to write, orders that need no fact, and the answer."""

    events: list[Event] = []
    effects: list[Effect] = []
    answer: Answer | None = None
