"""Lines of fields in a document, by their paths, also of the stage of a workflow that an error names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from phalanx.manifests.load import Map
from phalanx.manifests.short_workflow import NEEDS, is_short

_STEP = re.compile(r"\.?([^.\[\]]+)|\[([0-9]+)\]")
_STAGE = re.compile(r"stages\[([0-9]+)\](?: \([^)]*\))?\.?([^: ]*)")
_RING = re.compile(r"in a circle: ([^ ]+) ")
_OF_ENTRIES = {"after": "dependsOn", "name": "name"}  # what a workflow file has beside the spec of a stage


def line_of(content: Any, field: str) -> int:
    """The line of the innermost part of a path such as groups[0].tasks that is in the file; 0 if it has no lines."""
    line: int = getattr(content, "line", 0)
    for word, number in _STEP.findall(field):
        key = word.strip("'")
        if key and isinstance(content, Map) and key in content:
            line, content = content.lines.get(key, line), content[key]
        elif number and isinstance(content, list) and int(number) < len(content):
            lines = getattr(content, "lines", ())
            line, content = (lines[int(number)] if lines else line), content[int(number)]
        else:
            break
    return line


def stage_line(content: Map, complaint: str, names: Sequence[str]) -> int:
    """The line in a workflow file of what a complaint about its stages names; its first line if it names none."""
    spec = content.get("spec")
    shape = "graph.nodes" if isinstance(spec, dict) and "graph" in spec else "stages"
    if ring := _RING.search(complaint):
        found = (names.index(ring[1]), "after") if ring[1] in names else None
    else:
        match = _STAGE.match(complaint)
        found = (int(match[1]), match[2]) if match else None
    if found is None:
        return line_of(content, "")
    number, field = found
    if is_short(content):
        return _short_line(content, number, field.removeprefix("job.").removeprefix("groups[0]."))
    field = _OF_ENTRIES.get(field) or f"spec.{field.removeprefix('job.').removeprefix('groups[0].')}"
    if not isinstance(spec, dict) or (
        "stages" not in spec and "graph" not in spec
    ):  # one task, without a list
        return line_of(content, field)
    return line_of(content, f"spec.{shape}[{number}].{field}")


def _short_line(content: Map, number: int, field: str) -> int:
    """The line of a field of a stage in the short form, which has several words for what comes before it."""
    words = {"after": NEEDS, "shell": ("shell", "command")}.get(field, (field,))
    return max(line_of(content, f"stages[{number}].{word}") for word in words)
