"""Executors: which program a task type means. Declared by the operator in a file, read when the coordinator starts.

    [executors]
    inference = ["python3", "-m", "models.inference"]      # a command
    sft = "training.sft:run"                               # a function of a Python module on the node
    rag = { run = "models.rag:run_all", merges = true }    # one that takes several tasks at once
    ppo = { run = "training.ppo:run", cwd = "/srv/flows", python = "/srv/venv/bin/python", env = { HF_HOME = "/srv" } }

`cwd` is the folder that it runs in, and for a function where its module is looked for; `python` the program that runs a
function. Both are paths on the nodes. A stage that gives its own `cwd` runs there; its modules are found there first.

A function is called with the stage's spec, a dict; what it returns is the stage's result. A command finds the spec as
JSON in PHALANX_SPEC and writes its result to the file that PHALANX_RESULT names. A function that merges is called with
a list of specs and returns a list of results. A command that merges finds the other tasks in PHALANX_MERGED, as
`[{"task_id": ID, "spec": {...}}, ...]`, if there are any, and then writes `{"result": ..., "children": {ID: ...}}`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

from phalanx.api.schema.fields import check_argv, check_cwd, check_env
from phalanx.api.schema.workflows import TaskProgram
from phalanx.core.model.dispatch import MERGED_TYPES
from phalanx.errors import BadRequest, ConfigError

RETRIES = 3


class SubmitDefaults(Struct, frozen=True):
    """What submissions get that do not say it themselves: retries, and the program of their task type."""

    retries: int = RETRIES
    executors: Mapping[str, TaskProgram] = {}
    not_exported: tuple[str, ...] = ()  # variables that users' clients may send, and no job is given


FILE_BYTES_MAX = 1 << 20
EXECUTORS_MAX = 1000
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", re.ASCII)
_TASK_TYPE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
# It needs nothing but Python on the node. The folder of the task comes first in the path, as with `python -m`. What it
# writes if there is no such function is understood by the runner (`core/runner/attempts.py`).
_CALL = """\
import importlib, json, os, sys
target, mode, folder = sys.argv[1:4]
module, _, name = target.partition(":")
folders = [os.getcwd()] + [each for each in [folder] if each and each != os.getcwd()]
sys.path[:0] = folders
def cannot_run(why):
    text = "cannot run {}: {} (with {}, in {})".format(target, why, sys.executable, ", ".join(folders))
    with open(os.environ["PHALANX_RESULT"], "w") as file:
        json.dump({"phalanx_cannot_run": text[:1000]}, file)
    print(text, file=sys.stderr)
    sys.exit(127)
try:
    function = importlib.import_module(module)
except Exception as error:
    if not (isinstance(error, ImportError) and error.name and (module + ".").startswith(error.name + ".")):
        import traceback
        traceback.print_exc()
    cannot_run("{}: {}".format(type(error).__name__, error))
for part in name.split("."):
    if not hasattr(function, part):
        cannot_run("the module {} has no {}".format(module, name))
    function = getattr(function, part)
if not callable(function):
    cannot_run("{} is a {}, not a function".format(name, type(function).__name__))
spec = json.loads(os.environ.get("PHALANX_SPEC", "{}"))
if mode == "merges":
    others = json.loads(os.environ.get("PHALANX_MERGED", "[]"))
    results = list(function([spec, *(each["spec"] for each in others)]))
    if len(results) != 1 + len(others):
        sys.exit(f"{target} returned {len(results)} results for {1 + len(others)} specs")
    result = results[0]
    if others:
        parts = {each["task_id"]: part for each, part in zip(others, results[1:])}
        result = {"result": result, "children": parts}
else:
    result = function(spec)
if result is not None:
    with open(os.environ["PHALANX_RESULT"], "w") as file:
        json.dump(result, file)
"""
_ECHO = """\
import os
with open(os.environ["PHALANX_RESULT"], "w") as file:
    file.write(os.environ.get("PHALANX_SPEC", "{}"))
"""
# The one type that means the same everywhere: its result is its own spec, with all references resolved.
BUILT_IN: Mapping[str, TaskProgram] = MappingProxyType({"echo": TaskProgram(["python3", "-c", _ECHO])})


def read_executors(file: Path | None) -> dict[str, TaskProgram]:
    """The program of each task type; ConfigError if the file cannot be used."""
    if file is None:
        return dict(BUILT_IN)
    try:
        with file.open("rb") as stream:
            raw = stream.read(FILE_BYTES_MAX + 1)
        if len(raw) > FILE_BYTES_MAX:
            raise ConfigError(f"{file}: it is longer than {FILE_BYTES_MAX} bytes")
        content = tomllib.loads(raw.decode())
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"coordinator.executors_file = {file}: {error}") from None
    declared = content.get("executors")
    if set(content) - {"executors"} or not isinstance(declared, dict):
        raise ConfigError(f"{file}: expected one table, [executors], with a line for each task type")
    if len(declared) > EXECUTORS_MAX:
        raise ConfigError(
            f"{file}: {len(declared)} executors are too many, at most {EXECUTORS_MAX} are allowed"
        )
    return {**BUILT_IN, **{name: _program(file, name, value) for name, value in declared.items()}}


def _program(file: Path, name: str, value: Any) -> TaskProgram:
    if _TASK_TYPE.fullmatch(name) is None:
        raise ConfigError(
            f"{file}: executors.{name[:80]!r} is not a task type: letters, digits, '.', '_' and '-'"
        )
    fields = value if isinstance(value, dict) else {"run": value}
    try:
        declared = msgspec.convert(fields, DeclaredProgram)
        check_env(declared.env, "env")
        if declared.cwd is not None:
            check_cwd(declared.cwd, "cwd")
        if declared.python:
            check_argv((declared.python,), "python")
        if (
            isinstance(declared.run, list)
            and declared.run
            and all(isinstance(each, str) for each in declared.run)
        ):
            check_argv(tuple(declared.run), "run")
    except (msgspec.ValidationError, BadRequest) as error:
        raise ConfigError(
            f"{file}: executors.{name}: {error}: expected {{ run = ..., merges = true, cwd = '/FOLDER',"
            " python = '/PROGRAM', env = { NAME = 'VALUE' } }"
        ) from None
    return _checked_program(f"{file}: executors.{name}", name, declared)


class DeclaredProgram(Struct, forbid_unknown_fields=True):
    """One executor, as it is written in the file."""

    run: Any
    merges: bool = False
    cwd: str | None = None
    python: str | None = None
    env: dict[str, str] = {}


def _checked_program(where: str, name: str, declared: DeclaredProgram) -> TaskProgram:
    run, merges, python = declared.run, declared.merges, declared.python
    if merges and name not in MERGED_TYPES:
        types = ", ".join(sorted(MERGED_TYPES))
        raise ConfigError(f"{where}.merges: only tasks of these types run as one: {types}")
    if python is not None and (not python or " " in python or ("/" in python and not python.startswith("/"))):
        raise ConfigError(
            f"{where}.python = {python[:80]!r}: expected an absolute path, or the name of a program, without"
            " options and spaces"
        )
    if own := [each for each in declared.env if each.startswith("PHALANX_")]:
        raise ConfigError(f"{where}.env.{own[0]}: variables that begin with PHALANX_ are set by Phalanx")
    if isinstance(run, str) and _FUNCTION.fullmatch(run):
        argv = [python or "python3", "-c", _CALL, run, "merges" if merges else "", declared.cwd or ""]
    elif isinstance(run, list) and run and all(isinstance(each, str) and each for each in run):
        if python is not None:
            raise ConfigError(
                f"{where}.python: only functions have it; write it as the first word of the command"
            )
        argv = run
    else:
        raise ConfigError(
            f"{where} = {str(run)[:80]!r}: expected a command as a list of words, or a function as 'module:function'"
        )
    return TaskProgram(argv, merges, declared.cwd, declared.env)
