"""The program of a pod: the command, variables and folder of its container, for one process.

A process has no image, so a container that leaves its command to the image cannot be run; a plan, which runs nothing,
does not need a command. `$(NAME)` is replaced as Kubernetes does it.
"""

from __future__ import annotations

import re

from msgspec import Struct

from phalanx.manifests.view import View

NOTHING_RUNS = ("true",)  # the command in a plan, where nothing is run
_REFERENCE = re.compile(r"\$(?:\$|\(([-._a-zA-Z0-9]+)\))")


class Program(Struct, frozen=True):
    """What a task runs."""

    argv: tuple[str, ...]
    env: dict[str, str] = {}
    cwd: str | None = None


def read_program(pod: View) -> Program:
    """The program of a pod spec's first container; a plan needs none."""
    containers, for_plan = pod.views("containers"), pod.source.for_plan
    for container in containers:
        container.skip("name")
    for container in [*pod.views("initContainers"), *containers[1:]]:
        container.skip(*container.content)
        if not for_plan:
            container.caution(
                "name", "a task is one process: this container is not run, but what it asks for is kept"
            )
    if for_plan:
        for container in containers[:1]:
            container.skip("command", "args", "env", "envFrom", "workingDir")
        return Program(NOTHING_RUNS)
    if not containers:
        raise pod.error("containers", "there is none, so there is nothing to run")
    return _program(containers[0])


def _program(container: View) -> Program:
    command, args = container.strings("command"), container.strings("args")
    if not command:
        name = container.content.get("name") or "without a name"
        reason = f"args {args} alone leave the program to the image" if args else "there is no command"
        raise container.error(
            "command",
            f"container {name}: {reason}, and a process cannot run an image: say what to run in command",
        )
    env = _env(container)
    argv = tuple(_filled(each, env) for each in (*command, *args))
    return Program(argv, env, container.text("workingDir") or None)


def _env(container: View) -> dict[str, str]:
    found: dict[str, str] = {}
    for variable in container.views("env"):
        name = variable.text("name")
        if "valueFrom" in variable:
            variable.caution("valueFrom", f"only value is read, so {name} is not set")
            variable.skip("valueFrom")
            continue
        found[name] = _filled(variable.text("value"), found)
    return found


def _filled(text: str, env: dict[str, str]) -> str:
    """`$(NAME)` becomes the variable's value, `$$` a dollar sign; an unknown name stays as it is."""

    def fill(match: re.Match[str]) -> str:
        name = match.group(1)
        if name is None:
            return "$"
        return env.get(name, match.group())

    return _REFERENCE.sub(fill, text)
