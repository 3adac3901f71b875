"""What results of tasks say beside their values: for whom else a program has answered, and what its node has loaded.

The program of a merged task answers for all in one result, `{"result": its own, "children": {"ID": theirs, …}}`. Its
runner takes that apart; the coordinator does it for runners of an older version. A result may say which models and
datasets its node has loaded since (`cached`), and which it has no more (`evicted`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from phalanx.core.model.dispatch import CONTEXT_MAX, CONTEXT_NAME_MAX

NAMES_BYTES_MAX = 4096  # of all names that travel beside a result in the place for files


class PartResult(Struct, frozen=True, array_like=True):
    """The result of a job that ran as a part of an attempt, as JSON or in the place for files."""

    job: str
    result: str = ""
    result_bytes: int = 0
    result_sha256: str = ""


class LoadedNames(Struct, frozen=True):
    """What a task says about the models and datasets of its node."""

    cached: tuple[str, ...] = ()
    evicted: tuple[str, ...] = ()


def taken_apart(result: str) -> tuple[str, dict[str, str]] | None:
    """The result of a program that answered for several tasks: its own, and those of the others by id; else None."""
    try:
        found: Any = msgspec.json.decode(result) if result else None
    except (msgspec.DecodeError, RecursionError):
        return None
    children = found.get("children") if isinstance(found, dict) else None
    if not isinstance(children, dict) or "result" not in found:
        return None
    return _json(found["result"]), {id: _json(each) for id, each in children.items()}


def loaded_in(result: str) -> LoadedNames | None:
    """What a result says about its node; None if it says nothing."""
    if not result.startswith("{") or ('"cached"' not in result and '"evicted"' not in result):
        return None
    try:
        found = msgspec.json.decode(result, type=LoadedNames)
    except (msgspec.DecodeError, RecursionError):
        return None
    return LoadedNames(_names(found.cached), _names(found.evicted))


def shortened(loaded: LoadedNames | None) -> LoadedNames | None:
    """As many of its names as may travel beside a result."""
    if loaded is None:
        return None
    room, kept = NAMES_BYTES_MAX, list[list[str]]()
    for names in (loaded.evicted, loaded.cached):
        kept.append([])
        for name in names:
            room -= len(name.encode())
            if room >= 0:
                kept[-1].append(name)
    return LoadedNames(tuple(kept[1]), tuple(kept[0]))


def _names(given: Iterable[str]) -> tuple[str, ...]:
    return tuple([name.lower() for name in given if 0 < len(name) <= CONTEXT_NAME_MAX][:CONTEXT_MAX])


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
