"""Structs to protobuf messages and back, by their definitions: no field is written out by hand.

A `Converter` is made for one type of ours and one message, and making it compares the two: a field, an enumerator or a
type that stands in one and not in the other raises `Drift`. The rules:

    struct                      message, fields by name; a field in `LEFT_OUT` travels elsewhere
    int, float, str, …          int64, double, string; `FRACTIONS` are double: parts of a core, or a whole number
    numbers or text             string, as one would write it: 16GiB, 30
    Literal                     string
    any JSON                    string, as JSON
    IntEnum                     enum, each number one more, for 0 means that nothing was said
    X | None, or a default      presence: absent is None, or the default
    list, tuple[X, ...]         repeated; inside of another, or if None is possible, a message of one repeated field
    tuple[X, Y]                 message, fields by their order
    tagged structs              message of one oneof, its fields named by the tags
    dict[str, str]              map
    dict[str, any JSON]         string, as JSON, for the order counts; absent is empty
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from msgspec import NODEFAULT, DecodeError, json
from msgspec import inspect as types

LEFT_OUT = frozenset(
    {
        *(("HelloMessage", "token"), ("LogHello", "token")),  # in the metadata of the call
        *(("LogHello", "files"), ("LogHello", "sessions"), ("LogHello", "inputs")),  # frames only,
        *(("LogHello", "usage"), ("Beat", "idle"), ("LogHello", "times")),  # so are usage and times of logs,
        # and only runners of ours run VPSs (others refuse them), report images and health, or wait for readers.
        *(("Brief", "vps"), ("Brief", "host_key"), ("Start", "port"), ("Beat", "homes")),
        *(("LogHello", "snapshots"), ("HelloMessage", "health"), ("Beat", "health"), ("Beat", "unread")),
        *(("Beat", "preparing"), ("ReadLog", "hold"), ("LogHello", "holds"), ("Command", "environment")),
    }
)
FRACTIONS = frozenset({"cores"})
MESSAGE_WEIGHT = 4
_SCALARS: dict[type, int] = {
    types.BoolType: FieldDescriptor.TYPE_BOOL,
    types.IntType: FieldDescriptor.TYPE_INT64,
    types.FloatType: FieldDescriptor.TYPE_DOUBLE,
    types.StrType: FieldDescriptor.TYPE_STRING,
    types.LiteralType: FieldDescriptor.TYPE_STRING,
    types.BytesType: FieldDescriptor.TYPE_BYTES,
}
_NUMBERS = {types.IntType, types.FloatType}
_LISTS = (types.ListType, types.VarTupleType)
Write = Callable[[Any, Any], None]
Read = Callable[[Any], Any]


class Drift(TypeError):
    """The two definitions are not the same."""


class WrongMessage(ValueError):
    """A message that cannot be meant: which field, what it says, and what would be right."""

    def __init__(self, said: str, path: str = "") -> None:
        super().__init__(f"{path}{said}")
        self._said = said
        self._path = path

    def within(self, name: str) -> WrongMessage:
        """The same, seen from one level further out."""
        dot = "." if self._path and not self._path.startswith("[") else ""
        return WrongMessage(self._said, f"{name}{dot}{self._path}")


class Converter(NamedTuple):
    """`write(message, value)` fills an empty message; `read(message)` gives the value, or raises WrongMessage."""

    write: Write
    read: Callable[..., Any]


def converter(kind: Any, descriptor: Descriptor) -> Converter:
    """For a type of ours, and the message it travels as; raises Drift if they differ."""
    return _message(types.type_info(kind), descriptor)


def _message(info: types.Type, theirs: Descriptor | None) -> Converter:
    if theirs is None:
        raise Drift(f"{info} has no message")
    match info:
        case types.StructType():
            return _struct(info, theirs)
        case types.TupleType():
            return _tuple(info, theirs)
        case types.UnionType() if all(isinstance(each, types.StructType) for each in info.types):
            return _tagged([each for each in info.types if isinstance(each, types.StructType)], theirs)
        case types.ListType() | types.VarTupleType() if len(theirs.fields) == 1:
            name = theirs.fields[0].name
            write, read = _repeated(info, theirs.fields[0])
            return Converter(write, lambda message: _inside(name, read, message))
    raise Drift(f"{theirs.full_name} is not a message for {info}")


def _struct(info: types.StructType, theirs: Descriptor) -> Converter:
    made, name = info.cls, info.cls.__name__
    ours = {each.name: each for each in info.fields if (name, each.name) not in LEFT_OUT}
    if differing := ours.keys() ^ {each.name for each in theirs.fields}:
        both = f"{name} and {theirs.full_name}"
        raise Drift(f"{both}: only one of them has {', '.join(sorted(differing))}")
    parts = [(key, *_field(field, theirs.fields_by_name[key])) for key, field in ours.items()]

    def write(message: Any, value: Any) -> None:
        for key, put, _ in parts:
            put(message, getattr(value, key))

    def read(message: Any, **known: Any) -> Any:
        for key, _, get in parts:
            known[key] = _inside(key, get, message)
        try:
            return made(**known)
        except ValueError as error:  # a struct that looks at its own numbers
            raise WrongMessage(f": {error}") from None

    return Converter(write, read)


def _tuple(info: types.TupleType, theirs: Descriptor) -> Converter:
    fields = sorted(theirs.fields, key=lambda each: each.number)
    if len(fields) != len(info.item_types):
        raise Drift(f"{theirs.full_name} has {len(fields)} fields, and the tuple {len(info.item_types)}")
    parts = [
        (field.name, *_singular(each, field, is_optional=False, default=NODEFAULT))
        for each, field in zip(info.item_types, fields, strict=True)
    ]

    def write(message: Any, value: Any) -> None:
        for (_, put, _), each in zip(parts, value, strict=True):
            put(message, each)

    return Converter(write, lambda message: tuple(_inside(name, get, message) for name, _, get in parts))


def _tagged(kinds: list[types.StructType], theirs: Descriptor) -> Converter:
    by_tag = {str(kind.tag): kind for kind in kinds}
    if len(theirs.oneofs) != 1 or by_tag.keys() != {each.name for each in theirs.oneofs[0].fields}:
        raise Drift(f"{theirs.full_name}: expected one oneof of {', '.join(by_tag)}")
    if len(theirs.fields) != len(by_tag):
        raise Drift(f"{theirs.full_name}: expected no field beside its oneof")
    name, expected = theirs.oneofs[0].name, ", ".join(by_tag)
    parts = {tag: _message(kind, theirs.fields_by_name[tag].message_type) for tag, kind in by_tag.items()}
    tags = {kind.cls: (tag, parts[tag].write) for tag, kind in by_tag.items()}

    def write(message: Any, value: Any) -> None:
        tag, fill = tags[type(value)]
        chosen = getattr(message, tag)
        chosen.SetInParent()
        fill(chosen, value)

    def read(message: Any, **known: Any) -> Any:
        tag = message.WhichOneof(name)
        if tag is None:
            raise WrongMessage(f" is missing: expected one of {expected}", name)
        return _inside(tag, lambda found: parts[tag].read(found, **known), getattr(message, tag))

    return Converter(write, read)


def _field(field: types.Field, theirs: FieldDescriptor) -> tuple[Write, Read]:
    info, is_optional = _without_none(field.type)
    name = theirs.name
    if isinstance(info, types.DictType) and isinstance(info.value_type, types.AnyType):
        return _object(theirs)
    if isinstance(info, types.DictType):
        entry = theirs.message_type
        if entry is None or not entry.GetOptions().map_entry:
            raise Drift(f"{theirs.full_name}: expected a map")
        for part, of in (("key", info.key_type), ("value", info.value_type)):
            _scalar(of, entry.fields_by_name[part])
        return lambda message, value: getattr(message, name).update(value), lambda message: dict(
            getattr(message, name)
        )
    if isinstance(info, _LISTS) and not is_optional:
        return _repeated(info, theirs)
    default = field.default if field.default_factory is NODEFAULT else field.default_factory()
    return _singular(info, theirs, is_optional=is_optional, default=default)


def _object(theirs: FieldDescriptor) -> tuple[Write, Read]:
    """A JSON object in a string."""
    name = theirs.name
    _expect(theirs, FieldDescriptor.TYPE_STRING)
    if not theirs.has_presence:
        raise Drift(f"{theirs.full_name}: expected optional, for absent means no entries")

    def write(message: Any, value: Any) -> None:
        if value:
            setattr(message, name, _as_json(value))

    def read(message: Any) -> Any:
        if isinstance(found := _from_json(getattr(message, name) or "{}"), dict):
            return found
        raise WrongMessage(f" = {getattr(message, name)[:80]!r}: expected a JSON object")

    return write, read


def _without_none(info: types.Type) -> tuple[types.Type, bool]:
    if not isinstance(info, types.UnionType) or not info.includes_none:
        return info, False
    rest = tuple(each for each in info.types if not isinstance(each, types.NoneType))
    return (rest[0] if len(rest) == 1 else types.UnionType(rest)), True


def _repeated(info: types.Type, theirs: FieldDescriptor) -> tuple[Write, Read]:
    assert isinstance(info, types.ListType | types.VarTupleType)
    name, of = theirs.name, info.item_type
    if not _is_repeated(theirs):
        raise Drift(f"{theirs.full_name}: expected repeated")
    gather: Callable[[Any], Any] = list if isinstance(info, types.ListType) else tuple
    if theirs.message_type is None:
        to, back = _scalar(of, theirs)
        return (
            lambda message, value: getattr(message, name).extend(map(to, value)),
            lambda message: gather(map(back, getattr(message, name))),
        )
    inner = _message(of, theirs.message_type)

    def write(message: Any, value: Any) -> None:
        items = getattr(message, name)
        for each in value:
            inner.write(items.add(), each)

    def read(message: Any) -> Any:
        found: list[Any] = []
        try:
            for each in getattr(message, name):
                found.append(inner.read(each))  # noqa: PERF401 - its length says which of them is wrong
        except WrongMessage as error:
            raise error.within(f"[{len(found)}]") from None
        return gather(found)

    return write, read


def _singular(
    info: types.Type, theirs: FieldDescriptor, *, is_optional: bool, default: Any
) -> tuple[Write, Read]:
    """One value, which may be absent if there is something that this means."""
    name = theirs.name
    if _is_repeated(theirs):
        raise Drift(f"{theirs.full_name}: expected no repeated field")
    put, get = _stored(info, theirs)
    if not theirs.has_presence:
        if is_optional or (default is not NODEFAULT and default != theirs.default_value):
            raise Drift(f"{theirs.full_name}: expected optional, for absent means {default!r}")
        return put, get
    if theirs.message_type is None and not is_optional and default is NODEFAULT:
        raise Drift(f"{theirs.full_name}: expected a field that is always there")

    def write(message: Any, value: Any) -> None:
        if value is not None:
            put(message, value)

    def read(message: Any) -> Any:
        if message.HasField(name):
            return get(message)
        if default is NODEFAULT and not is_optional:
            raise WrongMessage(" is missing")
        return None if default is NODEFAULT else default

    return write, read


def _stored(info: types.Type, theirs: FieldDescriptor) -> tuple[Write, Read]:
    name = theirs.name
    if theirs.message_type is None:
        to, back = _scalar(info, theirs)
        return (
            lambda message, value: setattr(message, name, to(value)),
            lambda message: back(getattr(message, name)),
        )
    inner = _message(info, theirs.message_type)

    def write(message: Any, value: Any) -> None:
        part = getattr(message, name)
        part.SetInParent()
        inner.write(part, value)

    return write, lambda message: inner.read(getattr(message, name))


def _scalar(info: types.Type, theirs: FieldDescriptor) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    kinds = {type(each) for each in info.types} if isinstance(info, types.UnionType) else {type(info)}
    if theirs.name in FRACTIONS and kinds <= _NUMBERS:
        _expect(theirs, FieldDescriptor.TYPE_DOUBLE)
        return float, _whole if kinds == {types.IntType} else _number
    if isinstance(info, types.EnumType):
        _expect(theirs, FieldDescriptor.TYPE_ENUM)
        return _enumerators(info.cls, theirs.enum_type)
    if isinstance(info, types.AnyType):
        _expect(theirs, FieldDescriptor.TYPE_STRING)
        return _as_json, _from_json
    if len(kinds) > 1 and kinds <= _NUMBERS | {types.StrType}:
        _expect(theirs, FieldDescriptor.TYPE_STRING)
        return str, str
    if len(kinds) != 1 or (wanted := _SCALARS.get(type(info))) is None:
        raise Drift(f"{theirs.full_name}: no rule for {info}")
    _expect(theirs, wanted)
    return _same, _finite if wanted == FieldDescriptor.TYPE_DOUBLE else _same


def _as_json(value: Any) -> str:
    return json.encode(value).decode()


def _from_json(text: str) -> Any:
    try:
        return json.decode(text)
    except (DecodeError, RecursionError) as error:
        raise WrongMessage(f" = {text[:80]!r}: expected JSON: {error}") from None


def _enumerators(ours: Any, theirs: EnumDescriptor) -> tuple[Callable[[Any], int], Callable[[int], Any]]:
    prefix = (
        "".join(f"_{character}" if character.isupper() else character.upper() for character in theirs.name)[
            1:
        ]
        + "_"
    )
    expected = {f"{prefix}UNSPECIFIED": 0} | {prefix + each.name: each.value + 1 for each in ours}
    found = {each.name: each.number for each in theirs.values}
    if found != expected:
        differing = ", ".join(sorted(dict(found.items() ^ expected.items())))
        raise Drift(f"{ours.__name__} and {theirs.full_name} differ in {differing}")
    by_number = {each.value + 1: each for each in ours}

    def read(number: int) -> Any:
        if number not in by_number:
            raise WrongMessage(f" = {number}: expected one of {', '.join(list(expected)[1:])}")
        return by_number[number]

    return lambda value: int(value) + 1, read


def count_elements(message: Any, left: int) -> int:
    """What is left of a number of elements after all lists and maps within; WrongMessage if they are more.

    It is asked before a message is converted, for which each element costs many times as much. One that is a message
    itself counts `MESSAGE_WEIGHT` times.
    """
    for field, value in message.ListFields():
        if not _is_repeated(field):
            left = count_elements(value, left) if field.message_type is not None else left
            continue
        is_plain = field.message_type is None or field.message_type.GetOptions().map_entry
        left -= len(value) if is_plain else len(value) * MESSAGE_WEIGHT
        if left < 0:
            raise WrongMessage(f"{field.name}: its {len(value)} elements, with those before, are too many")
        for each in () if is_plain else value:
            left = count_elements(each, left)
    return left


def _inside(name: str, read: Read, message: Any) -> Any:
    try:
        return read(message)
    except WrongMessage as error:
        raise error.within(name) from None


def _expect(theirs: FieldDescriptor, wanted: int) -> None:
    if theirs.type != wanted:
        raise Drift(f"{theirs.full_name} has type {theirs.type}, expected {wanted}")


def _is_repeated(theirs: FieldDescriptor) -> bool:
    return (
        bool(theirs.is_repeated) if hasattr(theirs, "is_repeated") else theirs.label == theirs.LABEL_REPEATED
    )


def _same(value: Any) -> Any:
    return value


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise WrongMessage(f" = {value}: expected a finite number")
    return value


def _number(value: float) -> int | float:
    """A fraction, or a whole number as one."""
    return int(value) if _finite(value).is_integer() else value


def _whole(value: float) -> int:
    if not _finite(value).is_integer():
        raise WrongMessage(f" = {value}: expected a whole number")
    return int(value)
