"""How work with a task type is given to nodes: FlowMesh's modes, their settings, and what one choice rested on.

It is about stages of workflows, and about jobs of queues that name a mode; all other work follows
`core/model/score.py`. docs/concepts/dispatch.md explains it with an example; `core/placement/dispatch.py` chooses.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, structs

from phalanx.core.model.resources import Request

DispatchMode = Literal["adaptive", "static_worker", "fixed_pipeline", "static_round_robin"]
Selection = Literal["best_fit", "first_fit", "min_satisfying"]
Category = Literal["inference", "training", "other"]
TRAINING = frozenset({"sft", "lora_sft", "ppo", "dpo", "training", "image_classification_training"})
MERGED_TYPES = frozenset({"inference", "rag", "diffusion"})  # whose tasks may run as one
MERGE_MAX = 64
CONTEXT_MAX = 32  # names that one task may ask for
CONTEXT_NAME_MAX = 512
ALONE = "alone:"  # with its id the merge key of a task that was merged before, and now runs by itself
LANE = "lane"  # the strategy of a task that queues behind others of its kind, where the mode has put those
TASK_TYPE_TAG = "task-type"  # the tag of a job that says what its tasks do


def own_key(job: str) -> str:
    """The merge key of a task that runs by itself from now on, though its program may answer for several."""
    return f"{ALONE}{job}"


def category_of(task_type: str) -> Category:
    """Inference, training, or anything else."""
    if task_type == "inference":
        return "inference"
    return "training" if task_type in TRAINING else "other"


def checked(request: Request, mode: DispatchMode | None) -> Request:
    """What a node has to have for a task: taking turns, its devices are not looked at."""
    if mode != "static_round_robin":
        return request
    return structs.replace(request, gpus=0, gpu_type=None, gpu_memory_bytes=0)


class Dispatch(Struct, frozen=True, omit_defaults=True):
    """By which mode a job is given its node, and what it says about where it is best run."""

    mode: DispatchMode = "adaptive"
    task_type: str = ""
    context: tuple[str, ...] = ()  # models and datasets that it loads, in lower case
    sticky: str = ""  # the node on which the weights were made that it continues from
    selection: Selection | None = None  # None: the cluster's
    merge_key: str = ""  # tasks with the same one may run as one; empty: its program cannot do that

    @property
    def bound_type(self) -> str:
        """The task type whose tasks share one node; empty: none does, for a task without a type is bound to no node."""
        return self.task_type if self.mode == "fixed_pipeline" else ""

    @property
    def may_merge(self) -> bool:
        """Whether it may run as one with others."""
        return bool(self.merge_key) and not self.merge_key.startswith(ALONE)

    @property
    def waits_for_sticky(self) -> bool:
        """Whether it would rather wait for its node than load its weights on another."""
        return bool(self.sticky) and category_of(self.task_type) == "training"


class DispatchPolicy(Struct, frozen=True):
    """The choices an operator may make about it."""

    mode: DispatchMode = "adaptive"
    selection: Selection = "best_fit"
    weight_inference: float = 0.4  # λ: how much throughput counts against cost
    weight_training: float = 0.8
    weight_other: float = 0.5
    jitter: float = 1e-3
    reuse: bool = True  # nodes that have loaded what a task needs come first
    reuse_s: float = 3600.0  # for so long after they used it; 0: always
    sticky: bool = False
    learn: bool = True  # whether run times replace the proxies, once enough are known
    merge: bool = True  # whether tasks that differ only in their data run as one,
    merge_max: int = 4  # up to so many,
    merge_across_owners: bool = False  # also those of several users

    def weight(self, task_type: str) -> float:
        """λ of a task type, between 0 and 1."""
        category = category_of(task_type)
        if category == "inference":
            given = self.weight_inference
        else:
            given = self.weight_training if category == "training" else self.weight_other
        return min(max(given, 0.0), 1.0)


class DispatchNote(Struct, frozen=True, array_like=True):
    """What one choice rested on, kept with the placement."""

    strategy: str
    pool: int  # nodes with room
    reused: int = 0  # names that the chosen node had loaded already
    weight: float = 0.0
    score: float = 0.0
    others: tuple[tuple[str, float], ...] = ()  # the next best, with their scores
    learned_s: float = 0.0  # how long its like took on nodes as the chosen one, if the score rests on that
