"""The name of a field that was meant by one that does not exist: for REST, job files and the Python client alike."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

# As other schedulers and libraries call a field: the name that we have for it.
_ELSEWHERE = {
    "argv": "command",
    "args": "command",
    "chdir": "cwd",
    "cmd": "command",
    "cpu": "cores",
    "cpus": "cores",
    "depends_on": "after",
    "dependencies": "after",
    "dependency": "after",
    "environment": "env",
    "env_vars": "env",
    "gres": "gpus",
    "job_name": "name",
    "max_tries": "max_attempts",
    "n_workers": "max_workers",
    "ntasks": "tasks",
    "num_cpus": "cores",
    "partition": "queue",
    "resources": "cores",
    "retry": "retries",
    "sweep": "params",
    "timeout": "time_limit",
    "volumes": "mounts",
    "walltime": "time_limit",
    "workdir": "cwd",
    "working_dir": "cwd",
}
_TYPING_ERROR, _ALIKE = 0.8, 0.6  # how alike names are, at most 1
_LOOKED_AT = 80  # characters


def nearest(name: str, known: Collection[str]) -> str | None:
    """The name that is meant: that of another program, one spelt alike, or the only one with this word in it."""
    name = name[:_LOOKED_AT]
    if (meant := _ELSEWHERE.get(name)) in known:
        return meant
    fields = sorted(known)
    with_word = [each for each in fields if name in each.split("_")]
    close = get_close_matches(name, fields, 1, _TYPING_ERROR) or with_word[: len(with_word) == 1]
    return next(iter(close or get_close_matches(name, fields, 1, _ALIKE)), None)
