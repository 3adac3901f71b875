"""Tags: words that people put on their jobs, as labels are in Kubernetes, and selectors that ask for them.

They change nothing about where a task runs; `labels` of a request, which a node must carry, are another thing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from phalanx.core.model.job import Job

TAGS_MAX = 64
TERMS_MAX = 32
SELECTOR_MAX = 4096
_KEY = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._/-]{0,315}[A-Za-z0-9])?")
_VALUE = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")


def is_tag(key: str, value: str) -> bool:
    """True for what may be a tag: the rule of Kubernetes for labels."""
    return _KEY.fullmatch(key) is not None and _VALUE.fullmatch(value) is not None


class SelectorTerm(Struct, frozen=True):
    """One condition on one tag."""

    key: str
    sign: Literal["=", "!=", "there", "absent"]
    value: str = ""

    def holds(self, tags: Mapping[str, str]) -> bool:
        if self.sign in ("there", "absent"):
            return (self.key in tags) == (self.sign == "there")
        return (tags.get(self.key) == self.value) == (self.sign == "=")


class Selector(Struct, frozen=True):
    """Conditions that all have to hold. Without any, it selects everything."""

    terms: tuple[SelectorTerm, ...] = ()

    def selects_group(self, job: Job, number: int) -> bool:
        """Whether the tasks of a group, which have the tags of their job too, are asked for."""
        if not self.terms:
            return True
        tags = dict(job.tags) | dict(job.groups[number].tags)
        return all(term.holds(tags) for term in self.terms)

    def selects(self, job: Job) -> bool:
        """Whether a group of the job is asked for."""
        return not self.terms or any(self.selects_group(job, number) for number in range(len(job.groups)))


def parse_selector(text: str) -> Selector:
    """Read `app=train,tier!=test,owner,!draft`, or raise ValueError."""
    parts = [part.strip() for part in text.split(",")] if text.strip() else []
    if len(parts) > TERMS_MAX:
        raise ValueError(f"{len(parts)} conditions are too many, at most {TERMS_MAX} are read")
    return Selector(tuple(_term(part) for part in parts))


def _term(part: str) -> SelectorTerm:
    key, sign, value = part, "", ""
    for sign in ("!=", "==", "="):
        if sign in part:
            key, _, value = (each.strip() for each in part.partition(sign))
            break
    else:
        sign = ""
    is_absent = not sign and key.startswith("!")
    key = key.removeprefix("!") if is_absent else key
    if not is_tag(key, value):
        raise ValueError(f"{part[:80]!r} is not a condition: write KEY=VALUE, KEY!=VALUE, KEY or !KEY")
    if not sign:
        return SelectorTerm(key, "absent" if is_absent else "there")
    return SelectorTerm(key, "!=" if sign == "!=" else "=", value)
