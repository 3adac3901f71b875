"""Parameters of a task of a sweep, as its runner gives them to it: in the words of its command, and as variables.

The order to start has the values; the command of the brief is a template behind a word that stands for this
(`core/model/parameters.py`). A task of an array without parameters has its index in place of `{i}`.
docs/reference/environment.md lists the variables.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import json

from phalanx.core.model.orders import Brief, Start
from phalanx.core.model.parameters import PROGRAM
from phalanx.core.model.template import fill, with_index

PREFIX = "PHALANX_PARAM_"
ALL = "PHALANX_PARAMS"
_values = json.Decoder(dict[str, str])


def own_command(brief: Brief, start: Start) -> Sequence[str] | None:
    """The command of one task; None if it is that of its group."""
    if not start.params or brief.command.argv[:1] != (PROGRAM,):
        return None if start.index is None else with_index(brief.command.argv, start.index)
    return fill(brief.command.argv[1:], _values.decode(start.params), start.index)


def variables(params: str) -> dict[str, str]:
    """Each value under its name, and all of them as one JSON object."""
    return {PREFIX + name: value for name, value in _values.decode(params).items()} | {ALL: params}


def is_parameter(variable: str) -> bool:
    return variable.startswith(PREFIX) or variable == ALL
