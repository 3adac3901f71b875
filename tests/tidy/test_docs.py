"""Pages say what the code says: parts that are made from it are up to date, and everything public is documented."""

from __future__ import annotations

import ast
import inspect
import re
import typing
from collections.abc import Iterator
from typing import Any

import phalanx
from docs.site import pages, python_reference, stage
from tests.tidy.source import ROOT

# What the clients are built from, which users do not call.
INTERNAL = {"Transport", "AsyncTransport"}
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)
DIALECT = re.compile(
    r"\b(?:whoever|somebody|anybody|nobody|those who|by and by|unsaid|without a word|(?:is|are|was|were) told|and told"
    r"|pretended)\b",
    re.IGNORECASE,
)
NOT_PROSE = {
    "docs/glossary.md",
    "docs/reference/python.md",
    "docs/reference/python-types.md",
}  # with words of others
CLIENTS = (phalanx.Client, phalanx.AsyncClient, phalanx.LocalCluster)


def reachable(kinds: tuple[type, ...]) -> set[type]:
    """Every class of ours that stands in a signature of these, or in a field of one that does."""
    found: set[type] = set()
    waiting = [
        hint for kind in kinds for each in public(kind) for hint in typing.get_type_hints(each).values()
    ]
    while waiting:
        for part in parts(waiting.pop()):
            if part.__module__.startswith("phalanx.") and part not in found:
                found.add(part)
                waiting += typing.get_type_hints(part).values()
    return found


def parts(hint: Any) -> Iterator[type]:
    if isinstance(hint, type):
        yield hint
    if isinstance(origin := typing.get_origin(hint), type):
        yield origin
    for argument in typing.get_args(hint):
        yield from parts(argument)


def public(kind: type) -> list[Any]:
    return [
        each
        for name, each in inspect.getmembers(kind, inspect.isfunction)
        if name == "__init__" or not name.startswith("_")
    ]


def test_what_is_made_from_code_is_up_to_date():
    old = [path for path, text in pages.made().items() if (ROOT / path).read_text(encoding="utf-8") != text]
    assert old == [], "write them anew: .venv/bin/python -m docs.site.pages"


def test_every_page_is_in_the_navigation():
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    known = stage.pages(ROOT)
    text = stage.rewritten(index, "docs/index.md", known, ROOT, set())
    listed = {
        entry.partition("<")[2].strip(">") + ".md"
        for _, entries in stage.navigation(text)
        for entry in entries
    }
    left_out = {path for path, place in known.items() if place not in listed and "decisions/" not in place}
    assert left_out == {"docs/index.md"}, "list it in docs/index.md"


def test_every_decision_is_in_the_architecture():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    records = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs/decisions").glob("*.md"))]
    assert [path for path in records if f"({path})" not in text] == [], "list it under Decisions"


def dialect(text: str) -> list[str]:
    """Words that no engineer would write in a manual; what is code does not count."""
    return DIALECT.findall(CODE.sub("", text))


def test_pages_are_in_plain_technical_english():
    paths = [
        path for path in stage.pages(ROOT) if path.startswith("docs/") or path in ("README.md", "SECURITY.md")
    ]
    paths = [path for path in paths if "decisions" not in path and path not in NOT_PROSE]
    said = {path: words for path in paths if (words := dialect((ROOT / path).read_text(encoding="utf-8")))}
    assert said == {}


def test_a_word_of_the_dialect_is_seen():
    assert dialect("Whoever leads is told so; `is told` is code.") == ["Whoever", "is told"]


def test_whatever_a_client_takes_and_answers_is_exported():
    names = {each.__name__ for each in reachable(CLIENTS)}
    assert names - INTERNAL - set(phalanx.__all__) == set()


def test_every_exported_name_is_there_and_documented():
    undocumented = [
        name
        for name in phalanx.__all__
        if name != "__version__" and not vars(getattr(phalanx, name)).get("__doc__", phalanx.local.__doc__)
    ]
    assert undocumented == []
    assert [each.__name__ for each in public(phalanx.Client) if not each.__doc__] == []


def test_types_are_imported_for_checkers_from_where_they_are_found():
    tree = ast.parse((ROOT / "src/phalanx/__init__.py").read_text(encoding="utf-8"))
    imports = [each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)]
    checked = {
        alias.name: each.module
        for each in imports
        for alias in each.names
        if each.module and "phalanx." in each.module
    }
    found = {name: module for module, names in phalanx._MODULES.items() for name in names.split()}
    assert checked == {name: module for name, module in found.items() if name != "__version__"}
    assert sorted(checked) == sorted(set(phalanx.__all__) - {"__version__"})


def test_the_reference_shows_every_exported_name():
    text = python_reference.clients_text() + python_reference.types_text()
    assert [name for name in phalanx.__all__ if name != "__version__" and name not in text] == []


def test_the_reference_shows_every_call_of_clients_and_handles():
    text = python_reference.clients_text()
    calls = [name for name in dir(phalanx.Client) if name[0] != "_"]
    assert [name for name in calls if f"\n### {name}\n" not in text] == []
    types = python_reference.types_text()
    for kind in (phalanx.JobHandle, phalanx.WorkflowBuilder, phalanx.WorkflowHandle, phalanx.Executor):
        own = [name for name, each in vars(kind).items() if name[0] != "_" and inspect.isfunction(each)]
        assert [name for name in own if f"{kind.__name__}.{name}(" not in types] == []


def test_both_clients_have_the_same_calls():
    sync, other = ({name for name in dir(kind) if name[0] != "_"} for kind in CLIENTS[:2])
    assert sync == other


def missing_files(text: str) -> list[str]:
    """Files in backquotes, as paths from the repository or from the package, that do not exist."""
    named = re.findall(r"`([a-z_0-9]+(?:/\w+)*\.py)`", text)
    return [
        path for path in named if not any((base / path).exists() for base in (ROOT, ROOT / "src/phalanx"))
    ]


def test_the_files_that_the_architecture_names_exist():
    assert missing_files((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")) == []


def test_a_file_that_moved_is_seen():
    assert missing_files("`core/model/gone.py` and `errors.py` and `nowhere.py`") == [
        "core/model/gone.py",
        "nowhere.py",
    ]
