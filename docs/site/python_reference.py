"""The reference of the Python client as Markdown, made from the names of `phalanx`, their docstrings and their fields.

What a field means is the comment behind it in the source. The async client has the calls of the sync one, so only
those are described; a test holds the two together.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

import phalanx

_COMMENT = re.compile(r"^    (\w+)\s*:.*?#\s*(.+)$", re.MULTILINE)
_SHORT = re.compile(r"\b(?:phalanx|collections|typing|pathlib|types)(?:\.\w+)*\.(?=\w)")
_ANNOTATION = re.compile(r"(?<=[:>] )'([^']+)'")
_UNPACKED = re.compile(r"Unpack\[(\w+)\]")
CLIENTS = ("Client", "AsyncClient", "LocalCluster")


def errors() -> list[type[BaseException]]:
    """The exported errors, each behind the one it is derived from."""
    found = [each for each in _exported() if isinstance(each, type) and issubclass(each, BaseException)]
    return sorted(found, key=lambda each: [base.__name__ for base in reversed(each.__mro__)])


def types() -> list[type]:
    """The exported requests and answers, in the order of their names."""
    return [
        each
        for each in _exported()
        if isinstance(each, type) and each.__name__ not in CLIENTS and not issubclass(each, BaseException)
    ]


def clients_text() -> str:
    """Calls and errors."""
    client: type = phalanx.Client
    text = f"## Client\n\n{_prose(client)}\n\n" + _call_heading("Client", client) + "\n\n"
    text += f"{_prose(inspect.getattr_static(client, '__init__'))}\n\n"
    for name, function in _calls(client):
        text += f"### {name}\n\n{_call_heading(name, function)}\n\n{_prose(function)}\n\n"
    text += f"## AsyncClient\n\n{_prose(phalanx.AsyncClient)}\n\n"
    text += (
        "It has the same calls as `Client`. Await them; `logs` and `watch` are iterated with `async for`.\n\n"
    )
    text += f"## local\n\n{_call_heading('local', phalanx.local)}\n\n{_prose(phalanx.local)}\n\n"
    text += f"## LocalCluster\n\n{_prose(phalanx.LocalCluster)}\n\n"
    return text + _errors_text()


def types_text() -> str:
    """Requests and answers, each with its fields."""
    return "\n".join(_type_text(each) for each in types())


def _errors_text() -> str:
    lines = ["## Errors", "", "| error | derived from | HTTP | exit code | means |", "|---|---|---|---|---|"]
    for each in errors():
        status, code = getattr(each, "status", ""), getattr(each, "exit_code", "")
        base = each.__mro__[1].__name__
        lines.append(f"| `{each.__name__}` | `{base}` | {status} | {code} | {_cell(_doc(each))} |")
    return "\n".join(lines) + "\n"


def _type_text(kind: type) -> str:
    lines = [f"## {kind.__name__}", "", _prose(kind), ""]
    rows = list(_fields(kind))
    if rows:
        lines += ["| field | type | default | |", "|---|---|---|---|", *rows, ""]
    methods = [(name, method) for name, method in _calls(kind) if not name.startswith("_")]
    for name, method in methods:
        lines += [_call_heading(f"{kind.__name__}.{name}", method), "", _prose(method), ""]
    return "\n".join(lines)


def _fields(kind: Any) -> Iterator[str]:
    """Its fields and properties; those of a struct that it extends are with that one, which its docstring names."""
    hints = typing.get_type_hints(kind)
    for each in kind.__mro__[1:]:
        if each in _exported() and each.__name__ in _doc(kind):
            hints = {name: hint for name, hint in hints.items() if name not in each.__struct_fields__}
    notes = _comments(kind)
    for name, hint in hints.items():
        if not name.startswith("_"):
            note = _cell(notes.get(name, ""))
            yield f"| `{name}` | {_type(hint)} | {_default(kind, name)} | {note} |"
    for name, found in inspect.getmembers(kind, lambda each: isinstance(each, property)):
        if not name.startswith("_") and _doc(found):
            yield f"| `{name}` | `{inspect.signature(found.fget).return_annotation}` | | {_cell(_doc(found))} |"


@cache
def _comments(kind: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__ if not typing.is_typeddict(kind) else (kind,)):
        if each.__module__.startswith("phalanx"):
            found |= dict(_COMMENT.findall(inspect.getsource(each)))
    return found


def _default(kind: Any, name: str) -> str:
    if not issubclass(kind, msgspec.Struct):
        defaults = getattr(kind, "_field_defaults", {})
        return f"`{defaults[name]!r}`" if name in defaults else ""
    field = next(each for each in msgspec.structs.fields(kind) if each.name == name)
    if field.default is not msgspec.NODEFAULT:
        return f"`{field.default!r}`"
    if field.default_factory is not msgspec.NODEFAULT:
        return f"`{field.default_factory()!r}`"
    return "required"


def _calls(kind: type) -> Iterator[tuple[str, Any]]:
    """Public methods in the order in which the source has them, those of the classes that it is made of first."""
    names = dict.fromkeys(
        name
        for each in (*kind.__mro__[1:], kind)
        if each.__module__.startswith("phalanx")
        for name, method in vars(each).items()
        if name[0] != "_" and inspect.isfunction(method)
    )
    return ((name, getattr(kind, name)) for name in names)


def _call_heading(name: str, called: Any) -> str:
    signature = inspect.signature(called)
    kept = [each for each in signature.parameters.values() if each.name not in ("self", "exchange")]
    shown = _ANNOTATION.sub(r"\1", str(signature.replace(parameters=kept)))
    shown = _SHORT.sub("", _UNPACKED.sub(r"\1", shown))
    return f"```python\n{name}{shown}\n```" if len(shown) < 88 else f"```python\n{_broken(name, shown)}\n```"


def _broken(name: str, shown: str) -> str:
    """A long signature, one parameter to a line."""
    inner, _, answer = shown[1:].rpartition(")")
    parts = re.split(r", (?![^\[(]*[\])])", inner)
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){answer}"


def _type(hint: Any) -> str:
    """A type as it is written, with links to the types of ours in it."""
    text = hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
    text = _SHORT.sub("", text).replace("NoneType", "None").replace("~T", "T")
    ours = {each.__name__ for each in types()}
    if text in ours:
        return f"[{text}](#{text.lower()})"
    linked = sorted(name for name in ours if re.search(rf"\b{name}\b", text))
    shown = f"`{text}`".replace("|", "\\|")
    return shown + "".join(f" [→](#{name.lower()})" for name in linked)


def _doc(thing: Any) -> str:
    return inspect.cleandoc(thing.__doc__ or "")


def _prose(thing: Any) -> str:
    """A docstring; blocks that are indented are code, and those with indented lines are tables."""
    return "\n\n".join(_block(part) for part in _doc(thing).split("\n\n"))


def _block(part: str) -> str:
    if part.startswith("    "):
        return f"```python\n{inspect.cleandoc(part)}\n```"
    return f"```text\n{part.strip()}\n```" if "\n    " in part else part


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _exported() -> list[Any]:
    return [getattr(phalanx, name) for name in phalanx.__all__ if name not in ("__version__", "local")]
