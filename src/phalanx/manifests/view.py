"""Reads one mapping of a document, and remembers which of its fields have been read.

A reader asks for fields by name and type; the others can be listed afterwards, so that no field is ignored in silence.
A field that is absent and one that is null are the same.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Iterator
from typing import Any

from phalanx.api.schema.fields import shown
from phalanx.manifests.caution import Cautions, ManifestError
from phalanx.manifests.load import Document, Map, place
from phalanx.manifests.short_workflow import is_short


class Source:
    """The document of some views: its file, its title, and where its cautions go."""

    __slots__ = ("cautions", "file", "for_plan", "is_short", "lenient", "title")

    def __init__(
        self,
        document: Document,
        title: str,
        cautions: Cautions,
        *,
        lenient: bool = False,
        for_plan: bool = False,
    ) -> None:
        self.file = document.file
        self.is_short = is_short(document.content)  # a workflow whose stages have no spec of their own
        self.for_plan = for_plan  # nothing will be run, so fields of a running program do not matter
        self.title = title
        self.cautions = cautions
        self.lenient = lenient  # errors in it are cautions: it is part of a cluster and not to be run


class View:
    """One mapping of a document, under `key` of the mapping `around` it, perhaps in a list there."""

    __slots__ = ("_children", "_read", "around", "content", "key", "line", "place", "source")

    def __init__(
        self,
        source: Source,
        content: Map,
        around: View | None = None,
        key: str = "",
        *,
        place: int | None = None,
        line: int = 0,
    ) -> None:
        self.source = source
        self.content = content
        self.around = around
        self.key = key
        self.place = place  # in the list
        self.line = line or content.line
        self._read: set[str] = set()
        self._children: dict[str, list[View]] = {}

    def __contains__(self, key: str) -> bool:
        return self.content.get(key) is not None

    @property
    def path(self) -> str:
        """Its path in the document: spec.containers[0]."""
        if self.around is None:
            return ""
        path = self.around.at(self.key)
        return path if self.place is None else f"{path}[{self.place}]"

    def at(self, key: str) -> str:
        """The path of a field: spec.containers[0].image; a key with dots is in brackets."""
        path = self.path
        if path and any(sign in key for sign in "./[]"):
            return f"{path}[{key}]"
        return f"{path}.{key}" if path else key

    def where(self, key: str = "") -> str:
        return place(self.source.file, self.content.lines.get(key, self.line))

    def error(self, key: str, text: str, *, reason: str = "") -> ManifestError:
        """An error about a field, or without a key about the whole object, for the caller to raise."""
        message = ": ".join(filter(None, (self.source.title, self.at(key) if key else "", text)))
        return ManifestError(self.where(key), message, reason=reason)

    def caution(self, key: str, text: str, value: object = None) -> None:
        """Add a caution: a field was read otherwise than written, or not at all."""
        value = self.content.get(key) if value is None else value
        written = "" if value is None or value == "" else shown(value)
        path = self.at(key) if key else ""
        self.source.cautions.add(self.where(key), self.source.title, path, written, text)

    def note(self, key: str, text: str, value: object = None) -> None:
        """Add a caution if the object is to be run or planned; for one of a cluster it would be noise."""
        if not self.source.lenient:
            self.caution(key, text, value)

    def refuse(self, key: str, text: str, instead: str) -> None:
        """Raise an error if the object is to be run; if it is part of a cluster, add a caution and assume `instead`."""
        if not self.source.lenient:
            raise self.error(key, text)
        self.caution(key, f"{text}; {instead}")

    # Reading. Each of these marks the field as read.

    def get(self, key: str) -> Any:
        self._read.add(key)
        return self.content.get(key)

    def skip(self, *keys: str) -> None:
        """Mark fields that change nothing here, so that they give no caution."""
        self._read.update(keys)

    def text(self, key: str, default: str = "") -> str:
        value = self.get(key)
        if value is None:
            return default
        if isinstance(value, str):
            return value
        raise self.error(key, f"{shown(value)} is not text: put it in quotes")

    def word(self, key: str, words: Collection[str], default: str) -> str:
        """One of a few words."""
        value = self.text(key, default)
        if value in words:
            return value
        raise self.error(
            key, f"{shown(value)} is unknown{_meant(value, words)}, give one of: {', '.join(words)}"
        )

    def number(self, key: str, default: int, least: int, most: int) -> int:
        value = self.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, f"{shown(value)} is not a whole number")
        if not least <= value <= most:
            raise self.error(key, f"{shown(value)} is out of range, give {least} to {most}")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        value = self.get(key)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        raise self.error(key, f"{shown(value)} is neither true nor false")

    def strings(self, key: str) -> list[str]:
        value = self.get(key)
        if value is None:
            return []
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            return list(value)
        raise self.error(key, f"{shown(value)} is not a list of texts")

    def view(self, key: str) -> View:
        """The mapping under a key; an empty one if it is absent."""
        found = self._children.get(key)
        if found is None:
            value = self.get(key)
            if value is None:
                value = Map()
            if not isinstance(value, Map):
                raise self.error(key, f"{shown(value)} is not a mapping of fields")
            line = self.content.lines.get(key, self.line)
            found = self._children[key] = [View(self.source, value, self, key, line=line)]
        return found[0]

    def views(self, key: str) -> list[View]:
        """The list of mappings under a key."""
        found = self._children.get(key)
        if found is None:
            value = self.get(key)
            if value is None:
                value = []
            if not isinstance(value, list) or not all(isinstance(each, Map) for each in value):
                raise self.error(key, f"{shown(value)} is not a list of mappings")
            lines = getattr(value, "lines", ()) or [0] * len(value)
            found = self._children[key] = [
                View(self.source, each, self, key, place=number, line=line)
                for number, (each, line) in enumerate(zip(value, lines, strict=True))
            ]
        return found

    def parsed(self, key: str) -> Any:
        """A value that is JSON in a text, as annotations have it, or has been written as YAML."""
        value = self.get(key)
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value, object_pairs_hook=Map)
        except (ValueError, RecursionError) as error:
            raise self.error(key, f"{shown(value)} is not JSON: {error}") from None

    def inner(self, key: str, content: Map) -> View:
        """A view of what `parsed` gave, so that its fields are marked as well."""
        made = View(self.source, content, self, key, line=self.content.lines.get(key, self.line))
        self._children.setdefault(key, []).append(made)
        return made

    def forget(self) -> None:
        """Drop the record of read fields; for a large cluster it is not needed."""
        self._children.clear()
        self._read.clear()

    def left(self) -> Iterator[tuple[View, str]]:
        """The fields that were not read, here and in every mapping that was read."""
        for key, value in self.content.items():
            if key in self._read:
                for child in self._children.get(key, ()):
                    yield from child.left()
            elif value is not None and value not in ({}, [], ""):
                yield self, key


def _meant(value: str, words: Collection[str]) -> str:
    near = difflib.get_close_matches(value[:80], words, n=1)
    return f", did you mean {near[0]!r}?" if near else ""
