"""How deep JSON may be nested: where a text goes beyond the limit, as the path of the field.

Parsers and whatever walks through values use one frame of the stack for each level, so a text that is read well in one
place may be too deep in the next. What is beyond the limit is refused where it comes in.
"""

from __future__ import annotations

import re

JSON_DEPTH_MAX = 100
_SHOWN = 80
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"(?:\s*:)?|[\[\]{},]', re.DOTALL)


def too_deep_at(text: str, most: int = JSON_DEPTH_MAX) -> str | None:
    """The path of the first value that is nested in more than so many lists and objects; None if there is none."""
    if (
        text.count("[") + text.count("{") <= most
    ):  # as in almost every text, and then this is all that it costs
        return None
    path: list[str | int] = []
    for token in _TOKEN.finditer(text):
        sign = token[0]
        if sign in "[{":
            path.append(0 if sign == "[" else "")
            if len(path) > most:
                return _spelled(path)
        elif not path:
            continue
        elif sign in "]}":
            path.pop()
        elif sign == "," and isinstance(path[-1], int):
            path[-1] += 1
        elif sign.endswith(":"):
            path[-1] = sign[:-1].rstrip()[1:-1]
    return None


def _spelled(path: list[str | int]) -> str:
    text = ""
    for step in path[:-1]:
        text += f"[{step}]" if isinstance(step, int) else f".{step}"
        if len(text) > _SHOWN:
            return text[1 if text.startswith(".") else 0 : _SHOWN] + "…"
    return text.removeprefix(".")
