"""Options of other schedulers, as they stand in job scripts, in our words: what they would be here, and which have no
translation. Counts of a node (`--gres`, `--mem`) are divided by the tasks of a node, since ours are for one task.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from phalanx.api.schema.dependencies import after_of

MIB, GIB = 1 << 20, 1 << 30
_GRES = re.compile(r"gpu(?::(?P<type>[A-Za-z][\w-]*))?(?::(?P<number>[0-9]+))?")
_GPUS = re.compile(r"(?:(?P<type>[A-Za-z][\w-]*):)?(?P<number>[0-9]+)")
_SIZE = re.compile(r"([0-9]+)([KMGT]?)B?", re.IGNORECASE)
_CLOCK = re.compile(r"(?:([0-9]+)-)?([0-9]+)(?::([0-9]+))?(?::([0-9]+))?")
_UNITS = re.compile(r"(?:[0-9]+ ?[smhd] ?)+")
_RESOURCE = re.compile(r"gpus(?:/\w+)?=([0-9]+)")
_SLURM = {
    **dict.fromkeys(("-c", "--cpus-per-task"), "-c"),
    **dict.fromkeys(("-J", "--job-name"), "-n"),
    **dict.fromkeys(("-a", "--array"), "--array"),
    **dict.fromkeys(("-p", "--partition", "-A", "--account", "-q", "--qos"), "-q"),
    **dict.fromkeys(("-D", "--chdir"), "--cwd"),
    **dict.fromkeys(("-w", "--nodelist"), "--nodes"),
    **dict.fromkeys(("-x", "--exclude"), "--exclude"),
}
_SAME = {
    "SBATCH": _SLURM,
    "HQ": {"--cpus": "-c", "--name": "-n", "--array": "--array", "--cwd": "--cwd", "--env": "-e"},
    "PBS": {"-N": "-n", "-q": "-q", "-J": "--array", "-t": "--array"},
    "BSUB": {"-J": "-n", "-q": "-q", "-cwd": "--cwd"},
    "$": {"-N": "-n", "-q": "-q", "-t": "--array", "-wd": "--cwd"},
}
_SHAPES = {
    "SBATCH": {"-n": "tasks", "--ntasks": "tasks", "-N": "nodes", "--nodes": "nodes", "--ntasks-per-node": "per_node"},
    "HQ": {"--nodes": "nodes"},
}  # fmt: skip


class Option(NamedTuple):
    """An option of a script; `written` is how it stands there."""

    name: str
    value: str
    written: str


class Shape(NamedTuple):
    """How many tasks there are, and how many of them on a node."""

    tasks: int = 1
    per_node: int = 1
    is_spread: bool = False


def translated(system: str, lines: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our words for the options of these lines, and the options for which there are none."""
    options = list(_options(lines))
    shape = _shape(system, options)
    ours, others = dict[str, None](), list[str]()
    for option in options:
        words = _translated(system, option, shape)
        if words is None:
            others.append(option.written)
        elif words:
            ours[words] = None
    return list(ours), others


def _options(lines: Sequence[str]) -> Iterator[Option]:
    for line in lines:
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            yield Option("", "", line)
            continue
        while words:
            name, equals, value = (word := words.pop(0)).partition("=")
            if not word.startswith("--") and not equals and re.fullmatch(r"-[A-Za-z][0-9]+", word):  # -N2
                name, value = word[:2], word[2:]
            elif not equals and words and not words[0].startswith("-"):
                value = words.pop(0)
                word = f"{word} {shlex.quote(value)}"
            yield Option(name, value, word)


def _shape(system: str, options: Sequence[Option]) -> Shape:
    meant = _SHAPES.get(system, {})
    found = {
        meant[each.name]: int(each.value) for each in options if each.name in meant and each.value.isdecimal()
    }
    nodes, per_node = found.get("nodes", 1), found.get("per_node", 0)
    tasks = found.get("tasks", nodes * max(per_node, 1))
    if "nodes" in found and not per_node:
        per_node = -(-tasks // max(nodes, 1))
    return Shape(tasks, max(per_node, 1), is_spread=nodes > 1 and tasks == nodes)


def _translated(system: str, option: Option, shape: Shape) -> str | None:
    """One option in our words; empty for one that needs none, None if there are none."""
    name, value = option.name, option.value
    if name in _SHAPES.get(system, {}):
        if not value.isdecimal():
            return None
        spread = " --spread" if shape.is_spread else ""
        return f"--tasks {shape.tasks}{spread}" if shape.tasks > 1 else ""
    if (same := _SAME[system].get(name)) is not None:
        return f"{same} {shlex.quote(value)}" if value else None
    other = _OTHERS.get((system, name))
    return None if other is None else other(value, shape)


def _gpus_of_node(value: str, shape: Shape) -> str | None:
    return _gpus(value, shape.per_node)


def _gpus_of_job(value: str, shape: Shape) -> str | None:
    return _gpus(value, shape.tasks)


def _gpus_of_task(value: str, _shape: Shape) -> str | None:
    return _gpus(value, 1)


def _gpus(value: str, tasks: int) -> str | None:
    found = _GRES.fullmatch(value) or _GPUS.fullmatch(value)
    if found is None or (number := int(found["number"] or 1)) % tasks:
        return None
    kind = f" --gpu-type {found['type'].lower()}" if found["type"] else ""
    return f"--gpus {number // tasks}{kind}"


def _resource(value: str, _shape: Shape) -> str | None:
    found = _RESOURCE.fullmatch(value)
    return None if found is None else f"--gpus {found[1]}"


def _memory(value: str, shape: Shape) -> str | None:
    """Slurm counts in MiB where no unit is written, and in powers of 1024 everywhere."""
    found = _SIZE.fullmatch(value)
    if found is None or int(found[1]) == 0:  # 0: all of the node
        return None
    size = int(found[1]) * 1024 ** ("KMGT".index((found[2] or "M").upper()) + 1)
    size //= shape.per_node
    if size % GIB and size % MIB:
        return f"-m {size >> 10}KiB"
    return f"-m {size // GIB}GiB" if size % GIB == 0 else f"-m {size // MIB}MiB"


def _exclusive(value: str, shape: Shape) -> str | None:
    """A node for the job; with us for each task."""
    return "--exclusive" if not value and shape.per_node == 1 else None


def _dependency(value: str, _shape: Shape) -> str | None:
    """afterok:5:6,afterany:7; of which one is enough (?) is not known here."""
    found = []
    for part in value.removeprefix("depend=").split(","):
        kind, *jobs = part.split(":")
        if not jobs or any(after_of(kind, job) is None for job in jobs):
            return None
        found += [f"--after {after_of(kind, job)}" for job in jobs]
    return " ".join(found)


def _hold(value: str, _shape: Shape) -> str | None:
    return None if value else "--hold"


def _export(value: str, _shape: Shape) -> str | None:
    return f"--export {value}" if value in {"ALL", "NONE"} else None


def _time_limit(value: str, _shape: Shape) -> str | None:
    """Slurm's minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]]."""
    found = _CLOCK.fullmatch(value)
    if found is None or not value.strip("0:-"):
        return None
    days, *rest = found.groups()
    numbers = [int(each) for each in rest if each is not None]
    if days is None and len(numbers) < 3:
        numbers = [0, *numbers]
    hours, minutes, seconds = (*numbers, 0, 0)[:3]
    parts = ((int(days or 0), "d"), (hours, "h"), (minutes, "m"), (seconds, "s"))
    return "--time-limit " + "".join(f"{number}{unit}" for number, unit in parts if number)


def _with_units(value: str, shape: Shape) -> str | None:
    """HyperQueue's 10m, 1h 30m and hours:minutes:seconds."""
    if _UNITS.fullmatch(value):
        return f"--time-limit {value.replace(' ', '')}"
    return _time_limit(value, shape) if value.count(":") == 2 else None


_OTHERS: dict[tuple[str, str], Callable[[str, Shape], str | None]] = {
    **{("SBATCH", name): _gpus_of_node for name in ("--gres", "--gpus-per-node")},
    **{("SBATCH", name): _gpus_of_job for name in ("-G", "--gpus")},
    ("SBATCH", "--gpus-per-task"): _gpus_of_task,
    **{("SBATCH", name): _time_limit for name in ("-t", "--time")},
    ("SBATCH", "--mem"): _memory,
    ("SBATCH", "--exclusive"): _exclusive,
    **{("SBATCH", name): _dependency for name in ("-d", "--dependency")},
    **{("SBATCH", name): _hold for name in ("-H", "--hold")},
    ("SBATCH", "--export"): _export,
    ("PBS", "-W"): _dependency,
    ("PBS", "-h"): _hold,
    ("HQ", "--resource"): _resource,
    ("HQ", "--time-limit"): _with_units,
}
