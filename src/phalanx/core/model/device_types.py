"""Types of devices as requests name them: one kind, or every device whose name fits a pattern.

`h100` is one kind of device, as nodes list it; a request has it in lower case, however it was written. A type with
`*`, which stands for any text, is a pattern: `*a100*` are all devices whose kind or whose name, as their maker gave it,
contains `a100`. Patterns know no case, and take blanks, dashes and the like as one. Which devices of a node are of a
type is asked in `amounts.py`.
"""

from __future__ import annotations

import re
from functools import lru_cache

from phalanx.core.model.resources import Device, device_kind

ANYTHING = "*"
_KEPT = 4096  # users choose the patterns
_BETWEEN_WORDS = re.compile(r"[^a-z0-9]+")


def containing(text: str) -> str:
    """The pattern of all devices whose name contains a text; empty if it has no letter and no digit."""
    words = plain(text).strip("-")
    return f"{ANYTHING}{words}{ANYTHING}" if words else ""


def is_pattern(asked: str) -> bool:
    return ANYTHING in asked


def fits(pattern: str, device: Device) -> bool:
    """Whether a device is one of those that a pattern stands for."""
    return _fits(pattern, device.kind, device.name)


def plain(text: str) -> str:
    """A name without case, and with a dash for whatever stands between its words."""
    return _BETWEEN_WORDS.sub("-", text.lower())


@lru_cache(_KEPT)
def _fits(pattern: str, kind: str, name: str) -> bool:
    """A device whose maker's name is not known has its kind alone, and the pattern is shortened as that was."""
    parts = pattern.split(ANYTHING)
    if in_order([plain(part) for part in parts], plain(kind)):
        return True
    if name:
        return in_order([plain(part) for part in parts], plain(name).strip("-"))
    return in_order([device_kind(part) if part.strip(" -_") else "" for part in parts], plain(kind))


def in_order(parts: list[str], text: str) -> bool:
    """Whether a text begins with the first part, ends with the last, and has the others in between, in their order."""
    first, *middle, last = parts
    if not text.startswith(first):
        return False
    at = len(first)
    for part in middle:
        found = text.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return len(text) - len(last) >= at and text.endswith(last)
