"""Keyword arguments that a function does not have: one TypeError for all of them, with the name that each may mean.

Functions that take their fields as `**fields` check them here, before anything is sent. What a value has to be is left
to the coordinator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from difflib import get_close_matches

# As other schedulers and libraries call a field: the name that we have for it.
_ELSEWHERE = {
    "args": "command",
    "argv": "command",
    "chdir": "cwd",
    "cmd": "command",
    "cpu": "cores",
    "cpus": "cores",
    "depends_on": "after",
    "dependencies": "after",
    "dependency": "after",
    "env_vars": "env",
    "environment": "env",
    "gres": "gpus",
    "job_name": "name",
    "max_tries": "max_attempts",
    "n_workers": "max_workers",
    "ntasks": "tasks",
    "num_cpus": "cores",
    "partition": "queue",
    "retry": "retries",
    "timeout": "time_limit",
    "walltime": "time_limit",
    "workdir": "cwd",
    "working_dir": "cwd",
}
_TYPING_ERROR, _ALIKE = 0.8, 0.65  # how alike names are, at most 1


def check_keywords(
    function: str,
    given: Iterable[str],
    known: Collection[str],
    *,
    hints: Mapping[str, str] | None = None,
    listed_by: str = "",
) -> None:
    """Refuse names that are not known. `hints` say what to do about some; `listed_by` names what lists all of them."""
    wrong = {name: _meant(name, known, hints or {}) for name in given if name not in known}
    if wrong:
        told = "; ".join(f"no argument {name!r}{meant}" for name, meant in wrong.items())
        listed = listed_by or f"it has {', '.join(known)}"
        raise TypeError(f"{function}() has {told}{'' if all(wrong.values()) else f' ({listed})'}")


def _meant(name: str, known: Collection[str], hints: Mapping[str, str]) -> str:
    if name in hints:
        return f": {hints[name]}"
    near = _nearest(name, known)
    return f", did you mean {near!r}?" if near else ""


def _nearest(name: str, known: Collection[str]) -> str | None:
    """The name that is meant: that of another library, one spelt alike, or the only one with this word in it."""
    if (meant := _ELSEWHERE.get(name)) in known:
        return meant
    with_word = [each for each in known if name in each.split("_")]
    close = get_close_matches(name, known, 1, _TYPING_ERROR)
    return next(
        iter(close or with_word[: len(with_word) == 1] or get_close_matches(name, known, 1, _ALIKE)), None
    )
