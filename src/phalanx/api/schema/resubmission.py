"""A job once more with changes: fields of a submission, `env.NAME` and `param.NAME`, read as a submission reads them.

What is not changed stays as the job has it, also what no request could say again, such as a kept environment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import structs

from phalanx.api.schema.fields import (
    check_cwd,
    check_env,
    check_job_name,
    check_name,
    check_number,
    check_text,
    read_cores,
    read_duration,
    read_memory,
    read_span,
    shown,
)
from phalanx.api.schema.groupspec import (
    CORES_MAX,
    GPU_TYPE_BYTES_MAX,
    GPUS_MAX,
    GatherRules,
    check_target,
    parse_gather_rules,
    read_gather,
    read_nodes,
)
from phalanx.api.schema.jobspec import GRACE_S_MAX
from phalanx.api.schema.params import as_value, check_templates, read_params, sweep_array
from phalanx.core.model.array import TASKS_MAX
from phalanx.core.model.job import PRIORITY_MAX, RETRIES_MAX, Command, Group, Job
from phalanx.core.model.parameters import Params
from phalanx.core.model.resources import Request
from phalanx.errors import BadRequest

CHANGES_MAX = 256
NONE = "none"  # takes a time limit or a GPU type away
_REMOVABLE = ("time_limit", "gpu_type")
# Options of `submit` that have another name here.
_OPTIONS = {
    "limit": "at_once",
    "retries": "max_retries",
    "mem": "memory",
    "time": "time_limit",
    "gpu": "gpus",
}
_WHOLE = re.compile(r"-?[0-9]{1,20}")


def changed(job: Job, changes: Mapping[str, Any], repeats: str = "") -> Job:
    """The job with these changes, or a refusal that names the field; `repeats`: whose tasks the old one ran again."""
    if len(changes) > CHANGES_MAX:
        raise BadRequest(f"set: {len(changes)} changes are too many, at most {CHANGES_MAX} are allowed")
    axes: dict[str, Any] = {}
    for key, value in changes.items():
        kind, dot, name = key.partition(".")
        if dot and kind == "param":
            axes[name] = value
            continue
        if key in _LISTS:
            job = _LISTS[key](job, key, value)
            continue
        _check_single(key, value)
        if dot and kind == "env":
            job = _in_command(job, key, _with_variable(name, value))
        elif key in _OF_JOB:
            job = structs.replace(job, **_OF_JOB[key](key, value))
        elif key in _OF_REQUEST:
            job = _in_request(job, key, value)
        elif key == "cwd":
            job = _in_command(job, key, _with_folder(value))
        elif key == "at_once":
            job = _in_group(job, key, _with_limit(value))
        elif key == "min":
            job = _in_group(_gang(job, key), key, _with_min(value))
        else:
            raise _unknown(key)
    return _with_params(job, axes, repeats) if axes else job


def _unknown(key: str) -> BadRequest:
    """A key that cannot be changed, with the one that was probably meant."""
    keys = [*_OF_JOB, *_OF_REQUEST, "cwd", "at_once", "min", *_LISTS]
    near = [_OPTIONS[key]] if key in _OPTIONS else get_close_matches(key, keys, n=1)
    meant = f"; did you mean {near[0]}?" if near else ""
    known = ", ".join([*keys, "env.NAME", "param.NAME"])
    return BadRequest(f"set: {shown(key)} cannot be changed{meant}", hint=f"what can be: {known}")


def _check_single(key: str, value: Any) -> None:
    """Refuse what is neither a text nor a number, and null where nothing can be taken away: JSON brings any value."""
    is_single = isinstance(value, str | int | float) and not isinstance(value, bool)
    is_variable = key.startswith("env.")  # it has any value as text
    if not (is_single or is_variable or (value is None and key in _REMOVABLE)):
        raise BadRequest(f"set: {shown(key)}: {shown(value)} is neither a text nor a number")


def _number(key: str, value: Any, most: int, least: int = 0) -> int:
    if isinstance(value, str) and _WHOLE.fullmatch(value):
        value = int(value)
    if not isinstance(value, int):
        raise BadRequest(f"set: {key}: {shown(value)} is not a whole number")
    check_number(f"set: {key}", value, least, most)
    return value


def _text(key: str, value: Any) -> str:
    return as_value(value, f"set: {key}")


def _name(key: str, value: Any) -> dict[str, Any]:
    if value != "":
        check_job_name(f"set: {key}", _text(key, value))
    return {"name": _text(key, value)}


def _queue(key: str, value: Any) -> dict[str, Any]:
    queue = _text(key, value)
    check_name(f"set: {key}", queue)
    return {"queue": queue}


def _time_limit(key: str, value: Any) -> dict[str, Any]:
    return {"time_limit_s": None if value in (None, NONE) else read_duration(f"set: {key}", value)}


_OF_JOB: dict[str, Callable[[str, Any], dict[str, Any]]] = {
    "name": _name,
    "queue": _queue,
    "priority": lambda key, value: {"priority": _number(key, value, PRIORITY_MAX, -PRIORITY_MAX)},
    "time_limit": _time_limit,
    "grace": lambda key, value: {"grace_s": read_span(f"set: {key}", value, GRACE_S_MAX)},
    "max_retries": lambda key, value: {"max_retries": _number(key, value, RETRIES_MAX)},
}


def _cores(key: str, value: Any) -> dict[str, Any]:
    try:
        cores = float(value)
    except (TypeError, ValueError):
        raise BadRequest(f"set: {key}: {shown(value)} is not a number of cores") from None
    return {"cores": read_cores(f"set: {key}", int(cores) if cores.is_integer() else cores, CORES_MAX)}


def _gpu_type(key: str, value: Any) -> dict[str, Any]:
    if value in (None, NONE):
        return {"gpu_type": None}
    check_text(f"set: {key}", _text(key, value), GPU_TYPE_BYTES_MAX)
    return {"gpu_type": _text(key, value)}


def _size(key: str, value: Any) -> int:
    if isinstance(value, float):
        raise BadRequest(f"set: {key}: {shown(value)} is not a whole number of bytes")
    return read_memory(f"set: {key}", value, "a device" if key == "gpu_memory" else "a task")


_OF_REQUEST: dict[str, Callable[[str, Any], dict[str, Any]]] = {
    "cores": _cores,
    "memory": lambda key, value: {"memory_bytes": _size(key, value)},
    "gpus": lambda key, value: {"gpus": _number(key, value, GPUS_MAX)},
    "gpu_type": _gpu_type,
    "gpu_memory": lambda key, value: {"gpu_memory_bytes": _size(key, value)},
}


def _in_group(job: Job, key: str, change: Callable[[Group], Group]) -> Job:
    if len(job.groups) != 1:
        raise BadRequest(
            f"set: {key}: the job has {len(job.groups)} groups, and it is not clear which is meant"
        )
    return structs.replace(job, groups=(change(job.groups[0]),))


def _with_limit(value: Any) -> Callable[[Group], Group]:
    most = _number("at_once", value, TASKS_MAX)
    return lambda group: structs.replace(group, at_once=most if most < group.tasks else 0)


def _with_min(value: Any) -> Callable[[Group], Group]:
    def change(group: Group) -> Group:
        least = _number("min", value, group.tasks)
        return structs.replace(group, min=least if least < group.tasks else 0)

    return change


def _gang(job: Job, key: str) -> Job:
    if job.gang is None:
        raise BadRequest(f"set: {key}: the tasks of this job do not start together, so they have no {key}")
    return job


def _with_gather(job: Job, key: str, value: Any) -> Job:
    """Other rules of where the members of a gang stand; an empty list or text: none."""
    gang = _gang(job, key).gang
    assert gang is not None
    try:
        given = msgspec.convert([] if value == "" else value, GatherRules)
    except msgspec.ValidationError as error:
        raise BadRequest(f"set: {key}: {error}") from None
    rules = parse_gather_rules(given)
    is_spread = any(group.request.spread for group in job.groups)
    return structs.replace(job, gang=structs.replace(gang, gather=read_gather(rules, is_spread=is_spread)))


def _without_target(job: Job, key: str, value: Any) -> Job:
    """On any node. One with another target is another submission: it may name nodes that are not there."""
    if value not in ([], "", NONE):
        raise BadRequest(
            f"set: {key}: {shown(value)}: a target can only be taken away, with an empty list or none"
        )
    return _in_group(
        job, key, lambda group: structs.replace(group, request=structs.replace(group.request, target=None))
    )


def _with_nodes(job: Job, key: str, value: Any) -> Job:
    """On these nodes alone, or on none of these: a list, or a text with commas; an empty one or `none`: on any."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise BadRequest(f"set: {key}: {shown(value)} is not a list of nodes")
    names = [name for text in texts for name in text.split(",") if name not in ("", NONE)]
    nodes = read_nodes(f"set: {key}", names)

    def change(group: Group) -> Group:
        request: Request = structs.replace(group.request, **{key: nodes})
        check_target("set: ", list(request.nodes), request.exclusive, request.spread, request.target)
        if request.nodes and set(request.nodes) <= set(request.exclude):
            raise BadRequest(f"set: {key}: all nodes of the job are in exclude, so no node is left")
        return structs.replace(group, request=request)

    return _in_group(job, key, change)


_LISTS: dict[str, Callable[[Job, str, Any], Job]] = {
    "gather": _with_gather,
    "targets": _without_target,
    "nodes": _with_nodes,
    "exclude": _with_nodes,
}


def _in_request(job: Job, key: str, value: Any) -> Job:
    def change(group: Group) -> Group:
        request: Request = structs.replace(group.request, **_OF_REQUEST[key](key, value))
        if (
            request.target is not None
            and request.target.devices
            and request.gpus != len(request.target.devices)
        ):
            raise BadRequest(
                f"set: gpus: {request.gpus} contradicts target {request.target}, which names devices"
            )
        return structs.replace(group, request=request)

    return _in_group(job, key, change)


def _in_command(job: Job, key: str, change: Callable[[Command], Command]) -> Job:
    return _in_group(job, key, lambda group: structs.replace(group, command=change(group.command)))


def _with_variable(name: str, value: Any) -> Callable[[Command], Command]:
    def change(command: Command) -> Command:
        env = {**command.env, name: _text(f"env.{name}", value)}
        check_env(env, "set: env")
        return structs.replace(command, env=env)

    return change


def _with_folder(value: Any) -> Callable[[Command], Command]:
    check_cwd(_text("cwd", value), "set: cwd")
    return lambda command: structs.replace(command, cwd=value)


def _with_params(job: Job, axes: Mapping[str, Any], repeats: str) -> Job:
    """With other values of some parameters, and so with as many tasks as they make."""
    params = job.params or Params()
    names = [axis.name for axis in params.axes]
    if wrong := [name for name in axes if name not in names]:
        known = ", ".join(names) or "none"
        raise BadRequest(
            f"set: param.{wrong[0]}: the job has no grid parameter {shown(wrong[0])} (it has: {known})"
        )
    assert job.array is not None
    if len(job.array) != params.count:
        whole = f"resubmit {repeats}, whose tasks it runs again" if repeats else "resubmit the whole sweep"
        raise BadRequest(
            f"set: param.{next(iter(axes))}: the job has {len(job.array)} of {params.count} tasks of its sweep, and"
            f" others would have other numbers: {whole}"
        )
    read = read_params(axes, (), None, "set: ")
    assert read is not None
    new = {axis.name: axis for axis in read.axes}
    params = Params(tuple(new.get(axis.name, axis) for axis in params.axes), params.rows)
    if params.count > TASKS_MAX:
        raise BadRequest(f"set: {params.count} combinations are too many, at most {TASKS_MAX} are allowed")
    array = sweep_array(params, None, job.array.at_once)
    assert array is not None
    group = structs.replace(job.groups[0], tasks=len(array))
    check_templates(params, (group,))
    return structs.replace(job, params=params, array=array, groups=(group,))
