"""The source as the tidy tests see it: each Python file read and parsed once.

The rules live in the test files beside this one. Each is a function from sources to a list of violations, so
that it can be shown a bad file in `tmp_path` as well as the real tree.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_SKIPPED_FOLDERS = frozenset({"__pycache__", "build", "dist", "node_modules"})


@dataclass(frozen=True, eq=False)
class Source:
    """One Python file. `path` is relative to the root it was found under and uses forward slashes."""

    path: str
    text: str
    tree: ast.Module

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of the tree: finding them takes most of the time, and many rules ask."""
        return list(ast.walk(self.tree))

    def at(self, line: int, complaint: str) -> str:
        """A violation in the form editors can jump to."""
        return f"{self.path}:{line}: {complaint}"


@cache
def sources(root: Path, folder: str) -> tuple[Source, ...]:
    """Every Python file under `root/folder`, in order of path."""
    return tuple(_read(root, path) for path in files(root, folder, ".py"))


def files(root: Path, folder: str, suffix: str) -> list[Path]:
    """Every file with this suffix under `root/folder`, leaving out hidden folders and what tools made."""
    found = []
    for parent, folders, names in os.walk(root / folder):
        folders[:] = [name for name in folders if name not in _SKIPPED_FOLDERS and not name.startswith(".")]
        found += [Path(parent, name) for name in names if name.endswith(suffix)]
    return sorted(found)


def _read(root: Path, path: Path) -> Source:
    text = path.read_text(encoding="utf-8")
    return Source(path.relative_to(root).as_posix(), text, ast.parse(text, str(path)))


def a_tree(root: Path, texts: dict[str, str]) -> None:
    """Write files under `root` for a rule to be tried on, by path."""
    for name, text in texts.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def module_name(source: Source) -> str:
    """`src/phalanx/core/model/job.py` is `phalanx.core.model.job`; a folder's `__init__.py` is the folder."""
    parts = source.path.removesuffix(".py").removeprefix("src/").split("/")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(source: Source, node: ast.Import | ast.ImportFrom) -> list[str]:
    """The full dotted name of each thing an import statement brings in, relative ones resolved."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        parents = module_name(source).split(".")
        drop = node.level - source.path.endswith("__init__.py")
        package = ".".join(parents[: len(parents) - drop])
        base = f"{package}.{base}" if base else package
    return [f"{base}.{alias.name}" for alias in node.names]


@cache
def mentions(source: Source) -> tuple[tuple[int, str], ...]:
    """All of `_mentions`; several rules ask for the same file."""
    return tuple(_mentions(source))


def _mentions(source: Source) -> Iterator[tuple[int, str]]:
    """Line and full dotted name of everything that is imported, or reached through an imported name.

    After `from datetime import datetime as dt`, the expression `dt.now` is `datetime.datetime.now`. A name
    that was not imported stands for itself, so that `open` and `print` are seen too.
    """
    origins: dict[str, str] = {}
    for node in source.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias, name in zip(node.names, imported(source, node), strict=True):
                yield node.lineno, name
                top_only = isinstance(node, ast.Import) and alias.asname is None
                local = alias.asname or alias.name.split(".")[0]
                origins[local] = name.split(".")[0] if top_only else name
    for node in source.nodes:
        if isinstance(node, ast.Name | ast.Attribute) and (reached := _dotted(node, origins)):
            yield node.lineno, reached


def _dotted(node: ast.expr, origins: dict[str, str]) -> str | None:
    if isinstance(node, ast.Name):
        return origins.get(node.id, node.id)
    if isinstance(node, ast.Attribute) and (base := _dotted(node.value, origins)):
        return f"{base}.{node.attr}"
    return None
