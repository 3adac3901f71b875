"""What earlier placements mean for later ones: nodes bound to a workflow or to a task type, whose turn it is, and what
is loaded where.

It follows from the events: `apply` tells of each placement and each end. Placement sees it as a `DispatchView`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from phalanx.core.model.contexts import Contexts
from phalanx.core.model.dispatch import DispatchPolicy
from phalanx.core.model.job import Job, JobId, NodeName
from phalanx.core.model.run_times import RunTimes

TYPES_MAX = 1000  # of task types that are bound to a node; the one bound first is forgotten


class BindingsImage(Struct, frozen=True, array_like=True):
    workflows: dict[str, str] = {}
    types: dict[str, str] = {}
    turns: dict[str, int] = {}
    contexts: dict[str, dict[str, float]] = {}
    deferred: list[str] = []
    run_times: dict[str, dict[str, tuple[int, float]]] = {}
    stage_times: dict[str, dict[str, tuple[int, float]]] = {}
    last_turn: int = 0


class Bindings:
    """By workflow and by task type the node that it is bound to, and by node when it last had its turn."""

    def __init__(self) -> None:
        self.workflows: dict[str, NodeName] = {}  # in the mode static_worker, until the workflow has ended
        self.types: dict[str, NodeName] = {}  # in the mode fixed_pipeline, until the node is gone
        self.turns: dict[NodeName, int] = {}  # in the mode static_round_robin: who had a turn later has more
        self.last_turn = 0
        self.deferred: set[JobId] = set()  # jobs that are known to wait for their sticky node
        self.contexts = Contexts()
        self.run_times = RunTimes()  # by task type and models, for choices
        self.stage_times = RunTimes()  # by name, for estimates

    def note_placed(self, job: Job, node: NodeName) -> NodeName | None:
        """A task was given a node. Returns the node that its workflow was bound to before, if to another."""
        if job.dispatch is None:
            return None
        if job.dispatch.mode == "static_worker":
            key = workflow_key(job)
            former, self.workflows[key] = self.workflows.get(key), node
            return former if former != node else None
        if bound_type := job.dispatch.bound_type:
            self.types[bound_type] = node
            if len(self.types) > TYPES_MAX:
                del self.types[next(iter(self.types))]
        elif job.dispatch.mode == "static_round_robin":
            self.last_turn += 1
            self.turns[node] = self.last_turn
        return None

    def forget_node(self, node: NodeName) -> None:
        """A node was removed."""
        for table in (self.workflows, self.types):
            for key in [key for key, bound in table.items() if bound == node]:
                del table[key]
        self.turns.pop(node, None)
        self.contexts.forget_node(node)

    def image(self) -> BindingsImage | None:
        """All of it; None if there is nothing."""
        contexts, times = self.contexts.image(), (self.run_times.image(), self.stage_times.image())
        tables = (self.workflows, self.types, self.turns, contexts, sorted(self.deferred), *times)
        return BindingsImage(*tables, self.last_turn) if any(tables) or self.last_turn else None

    def restore(self, image: BindingsImage) -> None:
        self.workflows, self.types, self.turns = image.workflows, image.types, image.turns
        self.last_turn = max([image.last_turn, *self.turns.values()])
        self.contexts.restore(image.contexts)
        self.deferred = set(image.deferred)
        self.run_times.restore(image.run_times)
        self.stage_times.restore(image.stage_times)


def workflow_key(job: Job) -> str:
    """What a job shares a node with in the mode static_worker: its workflow, or else only itself."""
    return job.id if job.workflow is None else job.workflow[0]


class DispatchNode(Protocol):
    """What the modes have to know of a node beside its row in the table."""

    @property
    def number(self) -> int:
        """Nodes that joined later have a higher one."""
        ...

    @property
    def is_out(self) -> bool:
        """Whether it takes no work for a while: lost, drained or disabled."""
        ...

    def takes_work_of(self, job: Job) -> bool:
        """Whether it takes this job's work, if it has room."""
        ...


class DispatchView(Struct, frozen=True):
    """What placement may know about it all."""

    policy: DispatchPolicy
    bindings: Bindings
    nodes: Mapping[NodeName, DispatchNode]


NO_DISPATCH = DispatchView(DispatchPolicy(), Bindings(), {})
