"""One class, one name; and no file name that a reader has to learn before the file can be found."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.source import ROOT, Source, a_tree, sources

# Words of the household and of the army that stood here for words of the field; the glossary has what replaced them.
FORMER = frozenset((
    "aim", "band", "breath", "charter", "clearance", "company", "compass", "crew", "deed", "desk", "diary", "door",
    "estate", "hall", "heart", "letter", "muster", "newcomer", "oath", "office", "papers", "porch", "porter", "road",
    "roster", "site", "stand", "turnstile", "visit", "voice", "wholes", "wish",
))  # fmt: skip


def defined_twice(found: tuple[Source, ...]) -> list[str]:
    """Classes of one name in several modules: a reader of the name has to ask which."""
    places: dict[str, list[str]] = defaultdict(list)
    for source in found:
        for node in source.nodes:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(source.at(node.lineno, f"class {node.name}"))
    return [
        f"{where[0]} is defined again in {', '.join(where[1:])}"
        for where in places.values()
        if len(where) > 1
    ]


def given_twice(found: tuple[Source, ...]) -> list[str]:
    """Names that one module gives twice at its top level: what was meant by the first now means the second."""
    violations = []
    for source in found:
        seen: set[str] = set()
        for node in source.tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            names = [each.id for each in targets if isinstance(each, ast.Name)]
            names += (
                [node.name] if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) else []
            )
            violations += [source.at(node.lineno, f"{name} is given again") for name in names if name in seen]
            seen.update(names)
    return violations


def former_words(found: tuple[Source, ...]) -> list[str]:
    """Files and classes whose name has a word in it that was given up."""
    violations = []
    for source in found:
        words = set(re.split(r"[/_.]", source.path.removeprefix("src/phalanx/")))
        violations += [source.at(1, f"{word!r} in its name was given up") for word in sorted(_former(words))]
        for node in source.nodes:
            if isinstance(node, ast.ClassDef):
                parts = {part.lower() for part in re.findall(r"[A-Z][a-z]*", node.name)}
                violations += [
                    source.at(node.lineno, f"{word!r} was given up") for word in sorted(_former(parts))
                ]
    return violations


def former_identifiers(found: tuple[Source, ...]) -> list[str]:
    """Functions, arguments, variables and attributes whose name has such a word in it."""
    return [
        source.at(line, f"{name}: {word!r} was given up")
        for source in found
        for line, name in _identifiers(source)
        for word in sorted(_former(set(name.lower().split("_"))))
    ]


def _identifiers(source: Source) -> Iterator[tuple[int, str]]:
    for node in source.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr


def _former(words: set[str]) -> set[str]:
    return {word for word in words if {word, word.removesuffix("s"), word.removesuffix("es")} & FORMER}


def test_no_class_name_is_defined_twice():
    assert defined_twice(sources(ROOT, "src")) == []


def test_a_module_gives_a_name_once():
    assert given_twice(sources(ROOT, "src")) == []


def test_a_name_that_is_given_again_is_seen(tmp_path: Path):
    a_tree(tmp_path, {"src/phalanx/a.py": "LIMIT = 1\ndef f(): ...\nLIMIT: int = 2\ndef f(): ...\nx = 1\n"})
    assert given_twice(sources(tmp_path, "src")) == [
        "src/phalanx/a.py:3: LIMIT is given again",
        "src/phalanx/a.py:4: f is given again",
    ]


def test_words_that_were_given_up_name_no_file_and_no_class():
    assert former_words(sources(ROOT, "src")) == []


def test_words_that_were_given_up_name_no_function_and_no_variable():
    assert former_identifiers(sources(ROOT, "src")) == []


def test_a_former_word_is_seen_in_identifiers(tmp_path: Path):
    text = "def wishes_of(band):\n    self.porch = 1\n    standard = office = 2\n"
    a_tree(tmp_path, {"src/phalanx/a.py": text})
    assert [line.partition(": ")[2] for line in former_identifiers(sources(tmp_path, "src"))] == [
        "wishes_of: 'wishes' was given up",
        "band: 'band' was given up",
        "porch: 'porch' was given up",
        "office: 'office' was given up",
    ]


def test_a_class_that_is_defined_again_is_seen(tmp_path: Path):
    a_tree(tmp_path, {"src/phalanx/a.py": "class Table: ...\n", "src/phalanx/b.py": "class Table: ...\n"})
    assert defined_twice(sources(tmp_path, "src")) == [
        "src/phalanx/a.py:1: class Table is defined again in src/phalanx/b.py:1: class Table"
    ]


def test_a_former_word_is_seen_in_files_and_classes(tmp_path: Path):
    a_tree(tmp_path, {"src/phalanx/porch.py": "class TokenWishes: ...\nclass Standard: ...\n"})
    assert former_words(sources(tmp_path, "src")) == [
        "src/phalanx/porch.py:1: 'porch' in its name was given up",
        "src/phalanx/porch.py:1: 'wishes' was given up",
    ]
