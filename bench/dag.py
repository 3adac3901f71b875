"""The random DAG of the workflow benchmarks, as lists of numbers; other schedulers get the same one.

Each stage builds on up to three random ones of the hundred before it, some on none. So 10,000 stages are 311 deep, and
on average 32 of them could run at one time.
"""

from __future__ import annotations

from random import Random

WINDOW, PARENTS_MAX = 100, 3
Dag = list[list[int]]  # for each stage, the stages that it builds on


def random_dag(stages: int, seed: int = 1) -> Dag:
    dice = Random(seed)
    return [
        sorted(dice.sample(range(max(0, stage - WINDOW), stage), min(stage, dice.randint(0, PARENTS_MAX))))
        for stage in range(stages)
    ]


def depth(dag: Dag) -> int:
    """How many stages stand in the longest chain."""
    levels: list[int] = []
    for after in dag:
        levels.append(1 + max((levels[other] for other in after), default=0))
    return max(levels, default=0)
