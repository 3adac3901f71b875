"""Workflows that users submit, drawn from the seed: small graphs that pass values on, wide ones of short stages."""

from __future__ import annotations

from random import Random

from phalanx.core.model.job import Command, Group, Job
from phalanx.core.model.resources import Request
from phalanx.core.model.workflow import Stage, StageCondition, Workflow, workflow_id

VALUE = "VALUE"  # the variable in which a stage gets what another gave


def a_workflow(dice: Random, now: float) -> Workflow:
    """Up to seven stages; most build on earlier ones, some use a result, some have a condition that may not hold."""
    stages: list[Stage] = []
    for number in range(dice.randint(1, 7)):
        after = tuple(sorted(dice.sample(range(number), dice.randint(0, min(2, number))))) if number else ()
        env: dict[str, str] = {}
        condition = None
        if after and dice.random() < 0.3:
            env[VALUE] = f"${{s{after[0]}.result}}"
        elif after and dice.random() < 0.15:
            condition = StageCondition(after[0], ("key",), "never")
        group = Group(Command(_command(dice), env), Request(cores=dice.choice((1, 1, 2))))
        job = Job("", (group,), "", now, user="ada", max_retries=dice.choice((0, 1, 3)))
        stages.append(Stage(f"s{number}", job, after, condition, refers=bool(env)))
    return Workflow(workflow_id(int(now * 1000), dice.getrandbits(79)), tuple(stages), now, user="ada")


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


def _command(dice: Random) -> tuple[str, ...]:
    run_s = f"{dice.choice((0.01, 0.2, 1.0, 3.0)):.2f}"
    kind = dice.random()
    if kind < 0.8:
        return ("run", run_s, "0")
    return ("flaky", run_s, "1") if kind < 0.9 else ("run", run_s, "1")
