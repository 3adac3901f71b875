"""Values that Python programs have at hand, as fields of a submission are written: paths, durations, arrays, handles.

Only what can mean one thing is read; everything else goes as it is, for the coordinator to say what is wrong with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from phalanx.api.schema.groupspec import parse_gather_rules
from phalanx.api.schema.submission import SubmitReply


def plain_value(field: str, value: Any) -> Any:
    """The value of a field as the request has it."""
    read = _READERS.get(field)
    return value if read is None else read(value)


def _number_text(value: Any) -> Any:
    """A number as text; whether true and false are words is not guessed."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def plain_text(value: Any) -> Any:
    """A number or a path as text."""
    return os.fspath(value) if isinstance(value, os.PathLike) else _number_text(_native(value))


def _texts(value: Any) -> Any:
    """A list of texts, or a mapping to texts; one text alone is a mistake in some fields, and left as it is."""
    if isinstance(value, Mapping):
        return {name: plain_text(each) for name, each in value.items()}
    return [plain_text(each) for each in value] if isinstance(value, list | tuple) else value


def _list(value: Any) -> Any:
    return [plain_text(value)] if isinstance(value, str | os.PathLike) else _texts(value)


def _seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, timedelta) else value


def _instant(value: Any) -> Any:
    """A date and time without a zone is one of this machine."""
    return value.timestamp() if isinstance(value, datetime) else value


def _native(value: Any) -> Any:
    """A scalar or an array of NumPy and the like as Python's own."""
    return value.tolist() if hasattr(value, "tolist") else value


def _indexes(value: Any) -> Any:
    """The indexes of an array; one number alone might be an index or a count, and is refused."""
    if isinstance(value, range) and value.step > 0 and value:
        return f"{value[0]}-{value[-1]}:{value.step}"
    return value


def _parameters(value: Any) -> Any:
    return {name: _values(each) for name, each in value.items()} if isinstance(value, Mapping) else value


def _values(value: Any) -> Any:
    """The values of one parameter; a range, a set or a generator gives them one after another."""
    value = _native(value)
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        return value
    return [_native(each) for each in value]


def _jobs_before(given: Any) -> Any:
    """Jobs that come first, by their ids: they may be given as handles or numbers, and one alone without a list."""
    listed = [given] if isinstance(given, str | int | SubmitReply) else given
    return [
        id
        for each in listed
        for id in (each.task_ids if isinstance(each, SubmitReply) else [plain_text(each)])
    ]


_READERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("command", "env", "labels", "tags"), _texts),
    **dict.fromkeys(("cwd", "name", "image"), plain_text),
    **dict.fromkeys(("targets", "mounts", "nodes", "exclude"), _list),
    **dict.fromkeys(("time_limit", "grace", "gang_wait", "min_run"), _seconds),
    "begin": _instant,
    "array": _indexes,
    "params": _parameters,
    "after": _jobs_before,
    "gather": parse_gather_rules,
}
