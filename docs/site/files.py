"""Every file of the source by folder: what it says of itself, its classes and constants."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src/phalanx"
NAMES_MAX = 12


def text() -> str:
    """A list for each folder, in the order of their names."""
    folders: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        folder = path.parent.relative_to(SOURCE).as_posix().removeprefix(".")
        if said := _says(path):
            folders.setdefault(folder, []).append(f"- `{path.name}`: {said}")
    return "\n".join(
        f"**`{folder or 'phalanx'}/`**\n\n" + "\n".join(lines) + "\n"
        for folder, lines in sorted(folders.items())
    )


def _says(path: Path) -> str:
    """What a file says of itself, and its classes and constants; nothing for an empty one."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    doc = ast.get_docstring(tree)
    if doc is None:
        return ""
    names = list(_names(tree))
    shown = ", ".join(names[:NAMES_MAX]) + (" …" if len(names) > NAMES_MAX else "")
    return doc.split("\n\n")[0].replace("\n", " ") + (f" `{shown}`" if names else "")


def _names(tree: ast.Module) -> Iterator[str]:
    """Public classes and constants of a module."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name
        elif isinstance(node, ast.Assign):
            targets = [each for target in node.targets for each in ast.walk(target)]
            yield from (
                each.id
                for each in targets
                if isinstance(each, ast.Name) and each.id.isupper() and each.id[0] != "_"
            )
