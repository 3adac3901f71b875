"""References to the results of other stages: `${train.result.metrics.0.loss}`, a closed grammar over JSON values.

A reference names a stage and a path of keys and list indexes in that stage's result; `${train.task_id}` is the id of
the stage's job, and `${train.artifacts.model.pt}` names a file that the stage left, as `phalanx cp` understands it. A
text that is one reference becomes the value itself, with its type; a reference inside a longer text is written into it.
What is inserted is data: it is not read again for references. `$${` stands for a plain `${`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import Struct

from phalanx.core.model.files import why_bad_path

EXPRESSION_MAX = 1000
STAGE_NAME_MAX = 63  # it bounds the search for the stage of a reference
TASK_ID = "task_id"
RESULT = "result"
ARTIFACTS = "artifacts"
_EXPRESSION = re.compile(r"\$\$\{|\$\{([^{}]*)\}")


class Unresolved(ValueError):
    """A reference that cannot be read, or whose value is not there."""


class NullValue(Unresolved):
    """The value is there, and it is null."""


class Reference(Struct, frozen=True):
    """A stage, and where in its result the value stands; an empty path is the whole result."""

    stage: str
    path: tuple[str, ...] = ()
    is_id: bool = False  # the id of the stage's job is meant, which is known before it has run
    artifact: str | None = None  # the path of an artifact, not a value, is meant; empty: all of them


def has_references(text: str) -> bool:
    """Whether a text has anything to replace."""
    return "${" in text


def why_not_closed(text: str) -> str:
    """What is wrong with a `${` of a text that neither begins a reference nor is written as `$${`; empty: nothing."""
    end = 0
    for match in (*_EXPRESSION.finditer(text), None):
        between = text[end : len(text) if match is None else match.start()]
        if (at := between.find("${")) >= 0:
            return f"{between[at : at + 40]!r} is not closed: write ${{STAGE.result.KEY}}, or $${{ for a plain ${{"
        end = 0 if match is None else match.end()
    return ""


def names_a_stage(text: str, stages: Collection[str]) -> bool:
    """Whether a program text has what would be a reference elsewhere; no shell has a variable of that form."""
    return any(_stage_in(match.group(1) or "", stages) is not None for match in _EXPRESSION.finditer(text))


def _stage_in(expression: str, stages: Collection[str]) -> str | None:
    """The longest name of a stage that stands before a dot of an expression. Names are short, and so is the search."""
    begin = expression[: STAGE_NAME_MAX + 1]
    while (dot := begin.rfind(".")) > 0:
        begin = begin[:dot]
        if begin in stages:
            return begin
    return None


def references(text: str, stages: Collection[str]) -> Iterator[Reference]:
    """The references of a text; Unresolved if one of them cannot be read."""
    for match in _EXPRESSION.finditer(text):
        if match.group(1) is not None:
            yield read_reference(match.group(1), stages)


def read_reference(expression: str, stages: Collection[str]) -> Reference:
    """What stands between the braces. The stage is the longest name that the expression begins with."""
    shown = f"${{{expression[:80]}}}"
    if len(expression) > EXPRESSION_MAX:
        raise Unresolved(
            f"{shown}: {len(expression)} characters are too many, at most {EXPRESSION_MAX} are allowed"
        )
    parts = expression.strip().split(".")
    if not parts[0]:
        raise Unresolved(f"{shown} names no stage: write ${{STAGE.result.KEY}}")
    if len(parts) == 1:
        raise Unresolved(f"{shown} has no path: write ${{{parts[0][:60]}.result}} (and $${{ for a plain ${{)")
    if (name := _stage_in(expression.strip(), stages)) is not None:
        return _reference(name, parts[name.count(".") + 1 :])
    known = ", ".join(sorted(stages)[:8]) + (", …" if len(stages) > 8 else "")
    near = get_close_matches(parts[0][:60], stages, n=1)
    meant = f", did you mean {near[0]!r}?" if near else ""
    raise Unresolved(f"{shown}: there is no stage {parts[0][:60]!r}{meant} (stages: {known or 'none'})")


def _reference(stage: str, parts: list[str]) -> Reference:
    path = tuple(part.strip() for part in parts if part.strip())  # blank segments are skipped
    if path == (TASK_ID,):
        return Reference(stage, is_id=True)
    if path[:1] == (ARTIFACTS,):
        return Reference(stage, artifact=_artifact(stage, ".".join(parts).partition(".")[2].strip()))
    if inner := next((part for part in path if part.startswith("__")), ""):
        shown = ".".join(path)[:80]
        raise Unresolved(
            f"${{{stage}.{shown}}}: {inner[:60]!r} is not a key of a result, none begins with __"
        )
    return Reference(stage, path[1:] if path[:1] == (RESULT,) else path)


def _artifact(stage: str, path: str) -> str:
    """The path of an artifact, dots and all."""
    if path and (wrong := why_bad_path(path)):
        raise Unresolved(f"${{{stage}.{ARTIFACTS}.{path[:80]}}}: {wrong}")
    return path


def look_up(value: Any, path: tuple[str, ...]) -> Any:
    """The value at a path of keys and indexes; Unresolved if there is none. Only JSON values are looked into."""
    for depth, step in enumerate(path):
        before = value
        if isinstance(value, list):
            value = _member(value, step, ".".join(path[: depth + 1]))
        else:
            value = value.get(step) if isinstance(value, dict) else None
        if value is None:
            where = ".".join(path[: depth + 1])[:200]
            if isinstance(before, dict) and step in before:
                raise NullValue(f"the value at {where} of the result is null")
            raise Unresolved(f"the result has no value at {where}")
    if value is None:
        raise Unresolved("the result is empty")
    return value


def _member(values: list[Any], step: str, where: str) -> Any:
    if not (step.isascii() and step.isdecimal() and len(step) <= 9):
        raise Unresolved(f"the result has a list at {where[:200]}: {step[:60]!r} is not an index of it")
    return values[int(step)] if int(step) < len(values) else None


def resolve(value: Any, stages: Collection[str], found: Callable[[Reference], Any]) -> Any:
    """A JSON value with every reference in its texts replaced by what `found` gives for it."""
    if isinstance(value, str):
        return resolve_text(value, stages, found)
    if isinstance(value, list):
        return [resolve(each, stages, found) for each in value]
    if isinstance(value, dict):
        return {key: resolve(each, stages, found) for key, each in value.items()}
    return value


def resolve_text(text: str, stages: Collection[str], found: Callable[[Reference], Any]) -> Any:
    """The value of a text that is one reference, or the text with the values of all its references in it."""
    if "${" not in text:
        return text
    whole = _EXPRESSION.fullmatch(text)
    if whole is not None and whole.group(1) is not None:
        return found(read_reference(whole.group(1), stages))

    def written(match: re.Match[str]) -> str:
        if match.group(1) is None:
            return "${"
        return as_text(found(read_reference(match.group(1), stages)))

    return _EXPRESSION.sub(written, text)


def as_text(value: Any) -> str:
    """A JSON value as it stands inside a text: texts as they are, all others as JSON."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
