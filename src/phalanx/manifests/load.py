"""Documents from text: YAML, JSON and TOML, with limits, line numbers and no surprises.

PyYAML's parser gives events; values are built here so that every limit is kept while building: size, depth, how much
aliases may repeat, how many documents. Scalars follow YAML 1.2, so `no` is text and so is 12:30. A duplicate key and a
tag that is not one of the plain ones are errors.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn

import yaml
from msgspec import Struct

from phalanx.api.schema.fields import shown
from phalanx.manifests.caution import ManifestError

try:
    from yaml import CSafeLoader as Loader  # ten times as fast
except ImportError:  # a PyYAML that was built without libyaml
    from yaml import SafeLoader as Loader  # type: ignore[assignment]

BYTES_MAX = 256 * 1024 * 1024
DEPTH_MAX = 64
DOCUMENTS_MAX = 100_000
REPEATED_MAX = 100_000  # values that aliases may repeat, all together
DIGITS_MAX = 400
DIRECTIVES_MAX = 16  # before one document
KEY_PARTS_MAX = 64  # of a key of TOML

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_POINTED = re.compile(r"\.(?=[iInN])")  # Python writes inf and nan without the point
# libyaml compares each directive with all before, and tomllib looks at all parts of a key for each of them: what has
# thousands would hold the whole process. Possessive, so that no text makes the search itself slow.
_BREAK = r"[\r\n\x85\u2028\u2029]"
_REST = r"[^\r\n\x85\u2028\u2029]*+"
_DIRECTIVES = re.compile(
    rf"^(?:\ufeff?%{_REST}{_BREAK}++(?:[ \t]*+(?:#{_REST})?+{_BREAK}++)*+){{{DIRECTIVES_MAX + 1}}}",
    re.MULTILINE,
)
_KEY_PART = r"""(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+"""
_LONG_KEY = re.compile(rf"(?<![A-Za-z0-9_-])(?:{_KEY_PART}\.[ \t]*+){{{KEY_PARTS_MAX}}}")
_TAG = "tag:yaml.org,2002:"
_KINDS: dict[str, Any] = {"null": type(None), "bool": bool, "int": int, "float": float | int}
_MERGE = "<<"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class Map(dict[str, Any]):
    """A mapping with the line of each key, if its file has lines."""

    line: int = 0
    lines: Mapping[str, int] = MappingProxyType({})  # of keys; shared by all mappings without lines


class Seq(list[Any]):
    """A list with the line of each of its members."""

    line: int = 0
    lines: Sequence[int] = ()


class Document(Struct, frozen=True):
    """One document of a file. JSON and TOML have no lines; theirs are 0."""

    file: str
    content: Map

    @property
    def where(self) -> str:
        return place(self.file, self.content.line)


def place(file: str, line: int) -> str:
    """file:line, or the file alone where lines are not known."""
    return f"{file}:{line}" if line else file


def load(file: str, text: str, most: int = DOCUMENTS_MAX) -> list[Document]:
    """The documents of one file, at most so many, with lists of objects split up and empty documents left out."""
    size = len(text) if text.isascii() else _bytes(file, text)
    if size > BYTES_MAX:
        raise ManifestError(file, f"{size} bytes are too many, at most {BYTES_MAX} are read")
    documents: list[Document] = []
    for found in _parse(file, text, most):
        _flatten(file, found, documents)
        if len(documents) > most:
            raise _too_many(file, most)
    return documents


def _too_many(file: str, most: int) -> ManifestError:
    return ManifestError(file, f"too many documents, at most {most} are read")


def _bytes(file: str, text: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        raise ManifestError(file, "it holds what UTF-8 cannot spell") from None


def _parse(file: str, text: str, most: int) -> list[Any]:
    if file.endswith(".toml"):
        return [_toml(file, text)]
    if file.endswith(".json"):
        return [_json(file, text)]
    if text.lstrip()[:1] in ("{", "["):  # perhaps JSON, which is read much faster; YAML may start so as well
        try:
            return [_json(file, text)]
        except _NotJson:
            pass
    return _yaml(file, text, most)


def _flatten(file: str, found: Any, into: list[Document]) -> None:
    if found is None:
        return
    if isinstance(found, list):
        for item in found:
            _flatten(file, item, into)
    elif not isinstance(found, Map):
        raise ManifestError(file, f"{shown(found)} is not a document: a mapping of fields is expected")
    elif isinstance(found.get("items"), list) and str(found.get("kind", "")).lower().endswith("list"):
        for item in found["items"]:
            _flatten(file, item, into)
    else:
        into.append(Document(file, found))


# YAML


class _Builder:
    """Builds values from the events of one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.anchors: dict[str, tuple[Any, int]] = {}  # the value, and the number of values in it
        self.open: set[str] = set()  # anchors of what is being built
        self.count = 0
        self.repeated = 0

    def fail(self, event: Any, text: str) -> NoReturn:
        raise ManifestError(place(self.file, _line(event)), text, reason="MalformedYaml")

    def value(self, event: Any, parser: Any, depth: int) -> Any:
        """The value that starts with this event."""
        if depth > DEPTH_MAX:
            self.fail(event, f"nested too deep, at most {DEPTH_MAX} levels are read")
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event)
        before = self.count
        self.count += 1
        anchor = event.anchor
        if anchor is not None:
            self.open.add(anchor)
        if isinstance(event, yaml.ScalarEvent):
            found = self.scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            found = self.sequence(event, parser, depth)
        else:
            found = self.mapping(event, parser, depth)
        if anchor is not None:
            self.open.discard(anchor)
            self.anchors[anchor] = (found, self.count - before)
        return found

    def alias(self, event: Any) -> Any:
        if event.anchor in self.open:
            self.fail(event, f"*{event.anchor} is inside of what it names")
        if event.anchor not in self.anchors:
            self.fail(event, f"*{event.anchor} names nothing before it")
        found, size = self.anchors[event.anchor]
        self.count += size
        self.repeated += size
        if self.repeated > REPEATED_MAX:
            self.fail(event, f"aliases repeat too much, at most {REPEATED_MAX} values may be repeated")
        return found

    def sequence(self, event: Any, parser: Any, depth: int) -> Seq:
        self.check_tag(event, "seq")
        found = Seq()
        lines: list[int] = []
        found.line, found.lines = _line(event), lines
        while not isinstance(following := parser.get_event(), yaml.SequenceEndEvent):
            lines.append(_line(following))
            found.append(self.value(following, parser, depth + 1))
        return found

    def mapping(self, event: Any, parser: Any, depth: int) -> Map:
        self.check_tag(event, "map")
        found = Map()
        lines: dict[str, int] = {}
        found.line, found.lines = _line(event), lines
        merged: list[Any] = []
        while not isinstance(key := parser.get_event(), yaml.MappingEndEvent):
            if not isinstance(key, yaml.ScalarEvent):
                self.fail(key, "a key has to be plain text")
            is_merge = key.value == _MERGE and not key.style
            value = self.value(parser.get_event(), parser, depth + 1)
            if is_merge:
                merged.append((key, value))
            elif key.value in found:
                self.fail(
                    key, f"the key {shown(key.value)} appears twice, first on line {found.lines[key.value]}"
                )
            else:
                found[key.value] = value
                lines[key.value] = _line(key)
        for key, value in merged:
            self.merge(key, value, found, lines)
        return found

    def merge(self, key: Any, value: Any, into: Map, lines: dict[str, int]) -> None:
        for source in value if isinstance(value, list) else [value]:
            if not isinstance(source, Map):
                self.fail(key, f"{_MERGE} takes a mapping, or a list of them")
            for name, each in source.items():
                if name not in into:
                    into[name] = each
                    lines[name] = source.lines[name]

    def check_tag(self, event: Any, kind: str) -> None:
        if event.tag not in (None, "!", _TAG + kind):
            self.fail(event, f"the tag {shown(event.tag)} is unknown")

    def scalar(self, event: Any) -> Any:
        tag, text = event.tag, event.value
        if not text.isascii():
            _bytes(place(self.file, _line(event)), text)
        if tag in ("!", _TAG + "str") or (tag is None and event.style):
            return text
        found = self.plain(event, text)
        if tag is None:
            return found
        kind = _KINDS.get(tag.removeprefix(_TAG))
        if kind is None:
            self.fail(event, f"the tag {shown(tag)} is unknown")
        if not isinstance(found, kind):
            self.fail(event, f"{shown(text)} is not what its tag {shown(tag)} says")
        return found

    def plain(self, event: Any, text: str) -> Any:
        if text in _NULL:
            return None
        if text in _TRUE or text in _FALSE:
            return text in _TRUE
        if _INT.fullmatch(text):
            if len(text) > DIGITS_MAX:
                self.fail(event, f"a number of {len(text)} digits is too long")
            return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
        if _FLOAT.fullmatch(text):
            return float(_POINTED.sub("", text))
        return text


def _line(event: Any) -> int:
    line: int = event.start_mark.line
    return line + 1


def _yaml(file: str, text: str, most: int) -> list[Any]:
    found: list[Any] = []
    if (many := _DIRECTIVES.search(text)) is not None:
        where = place(file, text.count("\n", 0, many.start()) + 1)
        text = f"more than {DIRECTIVES_MAX} lines begin with %, which are directives of YAML"
        raise ManifestError(where, text, reason="MalformedYaml")
    try:
        parser = Loader(text)
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        raise _unreadable(file, error) from None
    try:
        builder = _Builder(file)
        while not isinstance(event := parser.get_event(), yaml.StreamEndEvent):
            if isinstance(event, yaml.DocumentStartEvent):
                builder.anchors.clear()
                found.append(builder.value(parser.get_event(), parser, 0))
                if len(found) > 2 * most:  # half of them may be empty
                    raise _too_many(file, most)
    except yaml.YAMLError as error:
        raise _unreadable(file, error) from None
    finally:
        parser.dispose()
    return found


def _unreadable(file: str, error: Exception) -> ManifestError:
    mark = getattr(error, "problem_mark", None)
    if getattr(error, "context", None) == _OPEN_QUOTE:
        mark = getattr(error, "context_mark", mark)
    what = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be read"
    said = _YAML_WORDS.get(what, what)
    return ManifestError(
        place(file, mark.line + 1 if mark else 0), f"this is not YAML: {said}", reason="MalformedYaml"
    )


_OPEN_QUOTE = "while scanning a quoted scalar"
# What libyaml says of the most common mistakes, and what to look at.
_ALIGN = "keys of one object begin in the same column, and what belongs to a key is indented below it"
_YAML_WORDS = {
    "did not find expected key": f"the indentation is wrong here or above: {_ALIGN}",
    "mapping values are not allowed in this context": (
        f"a key begins where a value was expected: {_ALIGN}; text with ': ' in it needs quotes"
    ),
    "did not find expected '-' indicator": "the indentation is wrong here: items of one list begin in the same column",
    "found a tab character that violates indentation": "this line is indented with a tab: YAML takes spaces alone",
    "found unexpected end of stream": "the text that begins here has no closing quote",
    "found character that cannot start any token": "a tab or another sign that YAML does not take: indent with spaces",
}


# JSON and TOML


class _NotJson(ManifestError):
    """Text that is not JSON; it may still be YAML."""


def _json(file: str, text: str) -> Any:
    def pairs(found: list[tuple[str, Any]]) -> Map:
        made = Map(found)
        if len(made) < len(found):
            seen: set[str] = set()
            key = next(key for key, _ in found if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise ManifestError(
                file, f"the key {shown(key)} appears twice in one object", reason="MalformedJson"
            )
        return made

    try:
        found = json.loads(text, object_pairs_hook=pairs, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise _NotJson(
            place(file, error.lineno), f"this is not JSON: {error.msg}", reason="MalformedJson"
        ) from None
    except RecursionError:
        raise _too_deep(file) from None
    except ValueError as error:
        raise ManifestError(file, f"this is not JSON: {error}", reason="MalformedJson") from None
    _check_depth(found, file)
    if _SURROGATE.search(text):  # an escape may be half of a character
        _bytes(file, json.dumps(found, ensure_ascii=False))
    return found


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number of JSON")


def _toml(file: str, text: str) -> Any:
    if (long := _LONG_KEY.search(text)) is not None:
        where = place(file, text.count("\n", 0, long.start()) + 1)
        text = f"a key of more than {KEY_PARTS_MAX} parts is too long"
        raise ManifestError(where, text, reason="MalformedToml")
    try:
        found = tomllib.loads(text)
    except RecursionError:
        raise _too_deep(file) from None
    except (tomllib.TOMLDecodeError, ValueError) as error:
        raise ManifestError(file, f"this is not TOML: {error}", reason="MalformedToml") from None
    _check_depth(found, file)
    return _plain(found)


def _plain(found: Any) -> Any:
    """The same as YAML gives; dates, which only TOML has, become text."""
    if isinstance(found, dict):
        return Map((key, _plain(value)) for key, value in found.items())
    if isinstance(found, list):
        return [_plain(each) for each in found]
    return found if isinstance(found, bool | int | float | str) else str(found)


def _check_depth(found: Any, file: str) -> None:
    level = [found] if isinstance(found, dict | list) else []
    for _ in range(DEPTH_MAX + 1):
        if not level:
            return
        inner = [each.values() if isinstance(each, dict) else each for each in level]
        level = [each for values in inner for each in values if isinstance(each, dict | list)]
    raise _too_deep(file)


def _too_deep(file: str) -> ManifestError:
    return ManifestError(file, f"nested too deep, at most {DEPTH_MAX} levels are read")
