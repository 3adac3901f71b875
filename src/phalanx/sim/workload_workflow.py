"""Workflows that users submit, drawn from the seed: small graphs that pass values on, wide ones of short stages."""

from __future__ import annotations

from random import Random
from typing import get_args

from msgspec import structs

from phalanx.core.model.dispatch import MERGED_TYPES, DispatchMode, DispatchPolicy, Selection
from phalanx.core.model.job import Command, Group, Job
from phalanx.core.model.resources import Request
from phalanx.core.model.workflow import Stage, StageCondition, Workflow, workflow_id

TASK_TYPES = ("", "inference", "sft", "rag")
MERGED_COMMANDS = (("run", "0.20", "0"), ("run", "1.00", "0"), ("flaky", "0.20", "1"), ("run", "0.20", "1"))
VALUE = "VALUE"  # the variable in which a stage gets what another gave


def a_workflow(dice: Random, now: float) -> Workflow:
    """Up to seven stages; most build on earlier ones, some use a result, some have a condition that may not hold."""
    stages: list[Stage] = []
    merged: tuple[str, ...] = dice.choice(MERGED_COMMANDS)
    for number in range(dice.randint(1, 7)):
        after = tuple(sorted(dice.sample(range(number), dice.randint(0, min(2, number))))) if number else ()
        env: dict[str, str] = {}
        condition = None
        if after and dice.random() < 0.3:
            env[VALUE] = f"${{s{after[0]}.result}}"
        elif after and dice.random() < 0.15:
            condition = StageCondition(after[0], ("key",), "never")
        task_type, spec = dice.choice(TASK_TYPES), _spec(dice, after)
        merges = task_type in MERGED_TYPES and dice.random() < 0.7
        if merges:  # those that are alike in all but their data
            argv: tuple[str, ...] = merged
            asked = Request(cores=1)
            spec, retries = f'{{"model": {{"identifier": "org/a"}}, "data": {number}}}', 1
        else:
            argv, retries = _command(dice), dice.choice((0, 1, 3))
            asked = Request(cores=dice.choice((1, 1, 2)), gpus=int(dice.random() < 0.15))
        job = Job("", (Group(Command(argv, env), asked),), "", now, user="ada", max_retries=retries)
        refers = bool(env) or "${" in spec
        stage = Stage(f"s{number}", job, after, condition, task_type, spec, refers, merges)
        stages.append(stage)
    return Workflow(workflow_id(int(now * 1000), dice.getrandbits(79)), tuple(stages), now, user="ada")


def limited(dice: Random, flow: Workflow) -> Workflow:
    """The same, sometimes with a deadline or a budget that it may well reach."""
    chance = dice.random()
    if chance < 0.15:
        return structs.replace(flow, deadline_at=flow.submitted_at + dice.choice((1.0, 5.0, 20.0, 60.0)))
    return structs.replace(flow, budget=dice.choice((1e-5, 1e-4, 1e-3))) if chance < 0.3 else flow


def a_wide_workflow(dice: Random, now: float) -> Workflow:
    """Many short stages of few requests, which queue in each other's lanes; a few are slow or fail."""
    user = dice.choice(("ada", "bob"))
    cores = dice.choice(((1,), (1, 2), (4,), (16, 16, 1)))
    stages: list[Stage] = []
    for number in range(dice.randint(20, 60)):
        first = max(0, number - 12)
        after = tuple(
            sorted(dice.sample(range(first, number), min(number - first, dice.choice((0, 1, 1, 2)))))
        )
        run_s, code = (
            ("4.00", "0") if dice.random() < 0.03 else ("0.01", "1" if dice.random() < 0.03 else "0")
        )
        group = Group(Command(("run", run_s, code)), Request(cores=dice.choice(cores)))
        job = Job(
            "",
            (group,),
            "",
            now,
            user=user,
            max_retries=dice.choice((1, 3)),
            priority=dice.choice((0, 0, 0, 2)),
        )
        stages.append(Stage(f"s{number}", job, after))
    return Workflow(workflow_id(int(now * 1000), dice.getrandbits(79)), tuple(stages), now, user=user)


def some_dispatch_policy(dice: Random) -> DispatchPolicy:
    """Any mode, with models that grow old within a run."""
    return DispatchPolicy(
        mode=dice.choice((*get_args(DispatchMode), "adaptive", "adaptive")),
        selection=dice.choice(get_args(Selection)),
        jitter=dice.choice((0.0, 1e-3)),
        reuse=dice.random() < 0.8,
        reuse_s=dice.choice((0.0, 5.0, 3600.0)),
        sticky=dice.random() < 0.5,
    )


def _spec(dice: Random, after: tuple[int, ...]) -> str:
    """A model, or the weights that a stage before it has made."""
    if dice.random() < 0.4:
        return ""
    if after and dice.random() < 0.3:
        return f'{{"checkpoint": {{"load": "${{s{after[0]}.result}}"}}}}'
    return f'{{"model": {{"source": {{"identifier": "org/{dice.choice("abc")}"}}}}}}'


def _command(dice: Random) -> tuple[str, ...]:
    run_s = f"{dice.choice((0.01, 0.2, 1.0, 3.0)):.2f}"
    kind = dice.random()
    if kind < 0.8:
        return ("run", run_s, "0")
    return ("flaky", run_s, "1") if kind < 0.9 else ("run", run_s, "1")
