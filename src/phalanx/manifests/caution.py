"""Cautions about fields that could not be honoured, and errors.

No field is ignored in silence. A caution names the file and line, the field, its value and how it was read; what many
documents have in common is reported once. With `strict`, the first caution is an error instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from phalanx.core.model.amounts import plural
from phalanx.errors import BadRequest


class ManifestError(BadRequest):
    """A file that cannot be read: where, which field, and what would be right."""

    def __init__(self, where: str, detail: str, *, reason: str = "", hint: str = "") -> None:
        super().__init__(f"{where}: {detail}", reason=reason or "InvalidManifest", hint=hint)
        self.where = where
        self.others: list[ManifestError] = []  # what else is wrong, in this document and in those after it


def together(errors: Sequence[ManifestError]) -> ManifestError:
    """The first of several errors, with all others, also those that they have themselves."""
    first, *others = errors
    for each in others:
        first.others += [each, *each.others]
    return first


class Caution(Struct, frozen=True):
    """A field that was read otherwise than written, or not at all."""

    where: str  # file:line of the first
    path: str  # Pod default/a: spec.containers[0].image
    value: str  # as written, short
    text: str
    times: int = 1  # in how many documents

    def __str__(self) -> str:
        value = f" {self.value}:" if self.value else ""
        more = f" (and {self.times - 1} more like it)" if self.times > 1 else ""
        place = ": ".join(filter(None, (self.where, self.path)))
        return f"{place}:{value} {self.text}{more}"


class Cautions:
    """The cautions of one reading, each reported once however many documents have it."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], Caution] = {}

    def add(self, where: str, title: str, field: str, value: str, text: str) -> None:
        """Add a caution; those about the same field of the same kind of document are counted, not repeated."""
        kind = title.partition(" ")[0]
        key = (kind, field, text)
        former = self._found.get(key)
        if former is None:
            path = ": ".join(filter(None, (title, field)))
            self._found[key] = Caution(where, path, value, text)
        else:
            self._found[key] = Caution(former.where, former.path, former.value, text, former.times + 1)

    def all(self) -> list[Caution]:
        return list(self._found.values())

    def refuse(self) -> None:
        """Raise all cautions as one error, if there are any."""
        if found := self.all():
            lines = "\n".join(map(str, found))
            text = f"{plural(len(found), 'field')} cannot be honoured:\n{lines}"
            raise ManifestError(found[0].where, text, reason="StrictManifest")
