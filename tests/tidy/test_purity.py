"""The quiet room stays quiet: `core/` is a function of its arguments.

`core/` imports values and nothing that waits, writes, reads a clock or throws dice. The keeper,
which stays beside a task while its runner restarts, imports the standard library only, so that it is small.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from tests.tidy.source import ROOT, Source, a_tree, imported, mentions, sources

CORE = "src/phalanx/core/"
KEEPER_PACKAGE = "phalanx.runner.keeper"
KEEPER = "src/phalanx/runner/keeper/"
KEEPER_TABLE = ("attempt", "table")  # what the keeper decides, and the simulator with it
TABLE_MODULES = {"re", "__future__", "collections", "collections.abc", "json", "signal", "typing"}

VALUE_MODULES = {
    *(
        "__future__",
        "_md5",
        "abc",
        "array",
        "bisect",
        "collections",
        "collections.abc",
        "dataclasses",
        "difflib",
        "enum",
    ),
    *(
        "functools",
        "hashlib",
        "heapq",
        "ipaddress",
        "itertools",
        "math",
        "operator",
        "re",
        "shlex",
        "struct",
        "types",
        "typing",
        "zlib",
    ),
}
VALUE_PACKAGES = ("msgspec", "numpy", "re2", "phalanx.core")
# What the allowed modules and the builtins would still let one do.
IMPURE = {
    *("open", "print", "input", "exec", "eval", "compile", "breakpoint", "__import__"),
    *("numpy.random", "numpy.load", "numpy.save", "numpy.savez", "numpy.savez_compressed", "numpy.savetxt"),
    *("numpy.loadtxt", "numpy.genfromtxt", "numpy.fromfile", "numpy.memmap", "numpy.lib"),
}


def impure_imports(found: tuple[Source, ...]) -> list[str]:
    return [
        source.at(node.lineno, f"core may not import {name}")
        for source in _core(found)
        for node in source.nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in imported(source, node)
        if not _is_value(name, from_import=isinstance(node, ast.ImportFrom))
    ]


def impure_calls(found: tuple[Source, ...]) -> list[str]:
    return [
        source.at(line, f"core may not use {name}")
        for source in _core(found)
        for line, name in mentions(source)
        if any(_within(name, impure) for impure in IMPURE)
    ]


def keeper_violations(found: tuple[Source, ...]) -> list[str]:
    return [
        source.at(node.lineno, f"the keeper may not import {name}")
        for source in found
        if source.path.startswith(KEEPER)
        for node in source.nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in imported(source, node)
        if name.split(".")[0] not in sys.stdlib_module_names and not _within(name, KEEPER_PACKAGE)
    ]


def table_violations(found: tuple[Source, ...]) -> list[str]:
    """The keeper's decisions are a function of their arguments too."""
    pure = {f"{KEEPER}{name}.py" for name in KEEPER_TABLE}
    allowed = {*TABLE_MODULES, KEEPER_PACKAGE, *(f"{KEEPER_PACKAGE}.{name}" for name in KEEPER_TABLE)}
    return [
        source.at(node.lineno, f"the keeper's table may not import {name}")
        for source in found
        if source.path in pure
        for node in source.nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in imported(source, node)
        if name not in allowed
        and name.rpartition(".")[0] not in allowed - {KEEPER_PACKAGE}
        and name != f"{KEEPER_PACKAGE}.VERSION"
    ]


def _core(found: tuple[Source, ...]) -> list[Source]:
    return [source for source in found if source.path.startswith(CORE)]


def _is_value(name: str, *, from_import: bool) -> bool:
    if any(_within(name, package) for package in VALUE_PACKAGES):
        return True
    return name in VALUE_MODULES or (from_import and name.rpartition(".")[0] in VALUE_MODULES)


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def test_core_imports_only_values():
    assert impure_imports(sources(ROOT, "src")) == []


def test_core_touches_no_clock_chance_file_or_terminal():
    assert impure_calls(sources(ROOT, "src")) == []


def test_the_keeper_needs_only_the_standard_library():
    assert keeper_violations(sources(ROOT, "src")) == []


def test_the_table_of_the_keeper_only_decides():
    assert table_violations(sources(ROOT, "src")) == []


def test_a_table_that_does_something_is_seen(tmp_path: Path):
    text = "import os\nimport json\nfrom . import clock\nfrom .spawn import Spawner\nfrom .attempt import Lanes\n"
    a_tree(tmp_path, {f"{KEEPER}table.py": text, f"{KEEPER}loop.py": "import os\n"})
    lines = [int(line.split(":")[1]) for line in table_violations(sources(tmp_path, "src"))]
    assert lines == [1, 3, 4]


def test_an_import_that_waits_or_writes_is_seen(tmp_path: Path):
    text = "import time\nfrom random import random\nimport collections.abc, asyncio\nfrom typing import Any\n"
    a_tree(tmp_path, {"src/phalanx/core/a.py": text, "src/phalanx/store/b.py": "import asyncio\n"})
    violations = impure_imports(sources(tmp_path, "src"))
    assert [line.rsplit(" ", 1)[1] for line in violations] == ["time", "random.random", "asyncio"]


def test_a_deed_by_an_allowed_name_is_seen(tmp_path: Path):
    text = "import numpy as np\nprint(1)\nnp.random.default_rng()\nopen('x')\n"
    a_tree(tmp_path, {"src/phalanx/core/a.py": text})
    lines = {int(line.split(":")[1]) for line in impure_calls(sources(tmp_path, "src"))}
    assert lines == {2, 3, 4}


def test_a_heavy_keeper_is_seen(tmp_path: Path):
    text = "import os\nimport msgspec\nfrom phalanx.clock import Clock\nfrom .. import processes\nfrom . import tree\n"
    a_tree(tmp_path, {"src/phalanx/runner/keeper/a.py": text})
    lines = [int(line.split(":")[1]) for line in keeper_violations(sources(tmp_path, "src"))]
    assert lines == [2, 3, 4]
