"""The settings by which nodes are chosen: the score of ordinary jobs, and the modes of workflows."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from phalanx.core.model.amounts import SECONDS_MAX
from phalanx.core.model.dispatch import DispatchMode, Selection
from phalanx.settings_types import Score, Weight


class Scheduler(Struct, frozen=True, kw_only=True):
    """How `phalanx coordinator` chooses nodes."""

    score: Annotated[
        Score,
        "pack or most-free-cores",
        "which node a task gets: the smallest that fits, or the one with the most free cores",
    ] = "pack"
    dispatch_mode: Annotated[
        DispatchMode,
        "adaptive, static_worker, fixed_pipeline or static_round_robin",
        "how stages of workflows are given their nodes; a queue may name another mode",
    ] = "adaptive"
    selection: Annotated[
        Selection,
        "best_fit, first_fit or min_satisfying",
        "which node the adaptive mode prefers: the best score, the first that joined, or the smallest",
    ] = "best_fit"
    weight_inference: Annotated[Weight, "how much throughput counts against cost for inference (λ)"] = 0.4
    weight_training: Annotated[Weight, "the same for training"] = 0.8
    weight_other: Annotated[Weight, "the same for all other task types"] = 0.5
    jitter: Annotated[
        Weight, "how much a hash of task and node may change a score, so that equals are used alike; 0 = none"
    ] = 1e-3
    reuse: Annotated[
        bool, "true or false", "whether nodes that have loaded the models and datasets of a stage come first"
    ] = True
    reuse_s: Annotated[
        Annotated[float, Meta(ge=0, le=SECONDS_MAX)],
        "a duration such as 3600, 60m or 1h, or 0",
        "how long after its last use a model or dataset counts as loaded; 0 = always",
    ] = 3600.0
    sticky: Annotated[
        bool,
        "true or false",
        "whether a stage that continues from the weights of another runs where those were made",
    ] = False
    learn: Annotated[
        bool,
        "true or false",
        "whether the score rests on earlier run times of the same task type and models, once enough are known",
    ] = True
    merge: Annotated[
        bool,
        "true or false",
        "whether inference, rag and diffusion stages that differ only in their data run as one, if their program can",
    ] = True
    merge_max: Annotated[
        Annotated[int, Meta(ge=1, le=64)],
        "a number from 1 to 64",
        "how many of them run as one; 1 = each by itself",
    ] = 4
    merge_across_owners: Annotated[
        bool, "true or false", "whether stages of different users may run as one process of one of them"
    ] = False
