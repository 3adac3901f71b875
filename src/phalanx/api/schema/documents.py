"""JSON documents and problems: bytes into a struct, or a refusal that says where and why; and back.

The types are the guard. A struct has a fixed depth and refuses unknown fields, so a document nested deeper
than its type is refused at the first bracket too many, before anything is built; NaN, Infinity and numbers
beyond reason are no JSON to msgspec. What is left to do here is to explain, and to refuse repeated keys, of
which msgspec would silently take the last. Query strings are read in `queries.py`.

Decoders are made by one thread at a time: msgspec looks at a Struct's fields when its first decoder is made, two
threads that do so at once may crash the process, and a client may be used by many threads.

A problem is one of our errors as RFC 9457 problem+json, and the error again on the other side of the wire: `type` names
the class of the error tree, so that a client raises the very class the coordinator raised; `reason` is the finer code.
Headers and status lines are left to `api/server/messages.py` and to the clients.
"""

from __future__ import annotations

import json
import math
import re
import threading
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from phalanx import errors
from phalanx.api.schema.fields import shown, too_deep
from phalanx.api.schema.nearest import nearest
from phalanx.core.model.json_depth import too_deep_at
from phalanx.errors import BadRequest, PhalanxError, TooMany, Unavailable

_making = threading.Lock()
_made: dict[Any, msgspec.json.Decoder[Any]] = {}

T = TypeVar("T", bound=msgspec.Struct)
BODY_BYTES_MAX = 1024 * 1024

# Possessive throughout (`*+`), so that no text can make it backtrack.
_STRING = re.compile(rb'"([^"\\]*+(?:\\.[^"\\]*+)*+)"\s*+(:?)', re.DOTALL)
_STEP = re.compile(r"\[[^\]]*\]|[^.\[\]]+")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_WRONG_TYPE = re.compile(r"expected ([a-z |]+), got ([a-z]+)")
_OUT_OF_RANGE = re.compile(r"expected (?:int|float) (<=|>=) (-?[0-9.e+]+)")
_LIMITS = {"<=": "most", ">=": "least"}
_TYPES = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": 'a list such as ["a", "b"]',
    "object": "an object with fields",
}

LISTED_MAX = 8  # fields of a struct in an example
_FOUND = {"bool": "a truth value", "object": "an object"}

_SHORT_BYTES = 4096  # of a body whose keys may well all differ
_LOOKED_AT_BYTES = 256 * 1024  # of a body that is nested too deep, to name the field

PROBLEM_TYPE = "application/problem+json"
_URN = "urn:phalanx:problem:"


def decoder(form: Any) -> msgspec.json.Decoder[Any]:
    """The decoder of a form."""
    found = _made.get(form)
    if found is None:
        with _making:
            found = _made.setdefault(form, msgspec.json.Decoder(form))
    return found


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """The body of a request that needs none: empty, or `{}`."""


def read_document(body: bytes, form: type[T]) -> T:
    """Decode JSON into a struct, or raise BadRequest naming the field and what would be right."""
    try:
        value: T = decoder(form).decode(body)
        _refuse_repeated_keys(body)
    except msgspec.ValidationError as error:
        raise explained(error, form, "field", _read_again(body)) from None
    except RecursionError:
        raise too_deep(too_deep_at(body[:_LOOKED_AT_BYTES].decode(errors="replace")) or "the body") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is not valid JSON: {error}", reason="MalformedJson") from None
    return value


def explained(error: msgspec.ValidationError, form: type, noun: str, document: object = None) -> BadRequest:
    """msgspec's words in ours: the field first, then what is wrong, then what it may have meant."""
    what, _, where = str(error).partition(" - at `$")
    unknown = _UNKNOWN.fullmatch(what)
    if unknown:
        return _unknown_field(unknown.group(1), form, where.rstrip("`").lstrip("."), noun)
    field, text = complaint(error, form, document)
    return BadRequest(f"{field or 'the document'}: {text}", reason="InvalidField")


def complaint(error: msgspec.ValidationError, form: type, document: object = None) -> tuple[str, str]:
    """The field, and what msgspec has against its value, in our words; of an unknown word, those that are known."""
    what, _, where = str(error).partition(" - at `$")
    what, field = what[:1].lower() + what[1:].replace("`", ""), where.rstrip("`").lstrip(".")
    if wrong := _WRONG_TYPE.fullmatch(what):
        kinds = wrong[1].replace("int | float", "float").removesuffix(" | null").split(" | ")
        expected = " or ".join(_TYPES.get(each, each) for each in kinds)
        wanted = _form_at(form, field)
        field, value = _value_at(document, field, wrong[2])
        expected = _with_example(expected, wanted, value)
        found = _FOUND.get(wrong[2], _TYPES.get(wrong[2], wrong[2])).partition(" such as")[0]
        if value is None:
            return field, f"expected {expected}, got {found}"
        quoted = f': "{json.dumps(value)}"' if expected == "text" and wrong[2] != "str" else ""
        if type(value) is int and field.rpartition(".")[2] == "array":
            quoted = f': "1-{value}" for {value} tasks, "{value}" for the one with this index'
        if isinstance(value, str) and field.rpartition(".")[2] == "command":
            expected = f"a list such as {json.dumps(value.split()[:8])}, or the same text as shell"
        said = json.dumps(value) if isinstance(value, bool) else shown(value)
        return field, f"{said} is {found}, give {expected}{quoted}"
    if limit := _OUT_OF_RANGE.fullmatch(what):
        return field, f"give at {_LIMITS[limit[1]]} {limit[2]}"
    value = what.removeprefix("invalid enum value ")
    words = _words_of(_form_at(form, field)) if value != what else []
    return field, f"{value} is not one of: {', '.join(words)}" if words else what


def _with_example(expected: str, form: Any, value: object) -> str:
    """What is expected, with an example of the list, the mapping or the struct that it is, and what else that may have.

    A text that was given in the place of a struct with one field that it needs is most likely that one.
    """
    struct = _struct_of(get_args(form)[0]) if get_origin(form) is list else form
    if get_origin(struct) is dict and get_args(struct)[1] is str:
        return expected.replace(_TYPES["object"], 'an object such as {"NAME": "value"}')
    fields = msgspec.structs.fields(struct) if _is_struct(struct) else ()
    if not 0 < len(fields) <= LISTED_MAX:
        return expected
    needed = [each.name for each in fields if each.required]
    others = ", ".join(_described(each.name, each.type) for each in fields if not each.required)
    if not needed:
        return expected.replace(_TYPES["object"], f"an object with any of {others}")
    given = value if isinstance(value, str) and len(needed) == 1 else "…"
    example = json.dumps(dict.fromkeys(needed, given), ensure_ascii=False)
    more = f" (optional: {others})" if others else ""
    expected = expected.replace(_TYPES["array"], f"a list such as [{example}]{more}")
    return expected.replace(_TYPES["object"], f"an object such as {example}{more}")


def _described(name: str, form: Any) -> str:
    """A field, with the words that it may have."""
    words = _words_of(form)
    return f"{name}: {' or '.join(words)}" if words else name


def _unknown_field(name: str, form: type, where: str, noun: str) -> BadRequest:
    fields = getattr(_form_at(form, where), "__struct_fields__", ())
    near = nearest(name, fields)
    meant = f", did you mean {near!r}?" if near else ""
    known = f"known: {', '.join(sorted(fields))}" if fields else f"no {noun} is known here"
    place = f"{where}: " if where else ""
    return BadRequest(f"{place}unknown {noun} {shown(name)}{meant}", reason="UnknownField", hint=known)


def _form_at(form: Any, where: str) -> Any:
    """The struct that stands at a path such as `specs[...].groups[...]` of a document."""
    for step in _STEP.findall(where):
        if step.startswith("["):
            form = next((each for each in get_args(form) if each is not str), None)
        else:
            form = _struct_of(get_type_hints(form).get(step)) if _is_struct(form) else None
    return _struct_of(form)


def _read_again(body: bytes) -> object:
    """A document of the wrong form, to show what is wrong in it; None if it cannot be read to its end."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def _value_at(document: Any, where: str, kind: str) -> tuple[str, str | int | float | None]:
    """The path, with the key that msgspec leaves out as `[...]`, and the value there, if it is a short one."""
    for step in _STEP.findall(where):
        key: Any = int(step[1:-1]) if step[1:-1].isdecimal() else step
        if step == "[...]" and isinstance(document, dict):
            key = next((each for each, value in document.items() if _kind_of(value) == kind), "")
            where = where.replace(step, f"[{shown(key)}]" if key else step, 1)
        try:
            document = document[key]
        except (KeyError, IndexError, TypeError):
            return where, None
    return where, document if isinstance(document, str | int | float) else None


def _kind_of(value: object) -> str:
    """The word that msgspec has for the type of a value."""
    if isinstance(value, dict | list):
        return "object" if isinstance(value, dict) else "array"
    return "null" if value is None else type(value).__name__


def _struct_of(form: Any) -> Any:
    """Of several forms that a value may have, the struct; a list or a mapping stays as it is."""
    if _is_struct(form) or get_origin(form) in (list, dict):
        return form
    return next((each for each in get_args(form) if _is_struct(each)), form)


def _words_of(form: Any) -> list[str]:
    """The words that a field may have, if it is made of words."""
    if get_origin(form) is Literal:
        return [str(word) for word in get_args(form)]
    return [word for each in get_args(form) for word in _words_of(each)]


def _is_struct(form: Any) -> bool:
    return isinstance(form, type) and issubclass(form, msgspec.Struct)


def _refuse_repeated_keys(body: bytes) -> None:
    """Keys that all differ as written cannot repeat; only other documents are looked at closely.

    One pass of a regular expression settles almost every short request. A key with an escape may spell another one,
    and the same key may stand in two objects, as it does in most long requests, which hold lists of objects. Those are
    read again by a parser that can tell.
    """
    if len(body) <= _SHORT_BYTES:
        keys = [key for key, colon in _STRING.findall(body) if colon]
        if len(set(keys)) == len(keys) and b"\\" not in b"".join(keys):
            return
    json.loads(body, object_pairs_hook=_each_key_once)


def _each_key_once(pairs: list[tuple[str, object]]) -> None:
    seen: set[str] = set()
    for key, _ in pairs if len(dict(pairs)) < len(pairs) else ():
        if key in seen:
            raise BadRequest(f"the key {shown(key)} is given twice in one object", reason="RepeatedKey")
        seen.add(key)


class FailedTarget(Struct):
    """A target that was not accepted, and why."""

    target: str
    reason: str  # a code, such as TargetNotFound
    detail: str


class Problem(Struct, omit_defaults=True):
    """RFC 9457 problem+json, with our reason code and what to do next."""

    type: str
    title: str
    status: int
    detail: str
    instance: str = ""
    reason: str = ""
    hint: str = ""
    failed_targets: list[FailedTarget] = []


_CLASSES = {
    name: each
    for name, each in vars(errors).items()
    if isinstance(each, type) and issubclass(each, PhalanxError) and each is not PhalanxError
}
_STANDARD = frozenset(Problem.__struct_fields__) - {"failed_targets"}


def spell_problem(error: PhalanxError, instance: str = "") -> bytes:
    """The error as problem+json. It contains only what the error was given."""
    problem = Problem(
        type=_URN + type(error).__name__,
        title=error.title,
        status=error.status,
        detail=error.detail,
        instance=instance,
        reason=error.reason,
        hint=error.hint,
    )
    if not error.extra:
        return msgspec.json.encode(problem)
    extra = {key: value for key, value in error.extra.items() if key not in _STANDARD}
    return msgspec.json.encode(msgspec.to_builtins(problem) | extra)


def read_problem(status: int, body: bytes, retry_after: str | None = None) -> PhalanxError:
    """The error behind an answer of 400 or more; by its type, or by its status if another server answered."""
    try:
        problem: Problem = decoder(Problem).decode(body)
        extra = _extra(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        problem, extra = Problem("about:blank", "", status, _foreign(status)), {}
    kind = _CLASSES.get(problem.type.removeprefix(_URN)) or _by_status(status)
    return kind(
        problem.detail,
        reason=problem.reason,
        hint=problem.hint,
        retry_after_s=_seconds(retry_after),
        extra=extra,
    )


def retry_after_s(error: PhalanxError) -> int | None:
    """Whole seconds for Retry-After, which 429 and 503 always carry."""
    if error.retry_after_s is None and error.status not in (TooMany.status, Unavailable.status):
        return None
    return max(1, math.ceil(error.retry_after_s or 1))


def _extra(members: dict[str, Any]) -> dict[str, Any]:
    extra = {key: value for key, value in members.items() if key not in _STANDARD}
    if "failed_targets" in extra:
        extra["failed_targets"] = msgspec.convert(extra["failed_targets"], list[FailedTarget])
    return extra


def _by_status(status: int) -> type[PhalanxError]:
    found = [each for each in _CLASSES.values() if each.status == status and each.__base__ is PhalanxError]
    if found:
        return found[-1]  # of two with one status the later is the plainer: Unavailable, not NoRoom
    return Unavailable if status in (502, 504) else PhalanxError


def _foreign(status: int) -> str:
    return f"the server answered {status} without a problem document; is this address a phalanx coordinator?"


def _seconds(text: str | None) -> float | None:
    return (
        float(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 10 else None
    )
