"""Every file of the source by folder, with the first sentence of its docstring, for the end of ARCHITECTURE.md."""

from __future__ import annotations

import ast
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src/phalanx"
GENERATED = ("rpc/generated",)  # compiled from proto/


def text() -> str:
    """A list for each folder, in the order of their names."""
    folders: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        folder = path.parent.relative_to(SOURCE).as_posix().removeprefix(".")
        if (said := _says(path)) and not folder.startswith(GENERATED):
            folders.setdefault(folder, []).append(f"- `{path.name}`: {said}")
    return "\n".join(
        f"**`{folder or 'phalanx'}/`**\n\n" + "\n".join(lines) + "\n"
        for folder, lines in sorted(folders.items())
    )


def _says(path: Path) -> str:
    """The first line of what a file says of itself; nothing for an empty one."""
    doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    return "" if doc is None else doc.split("\n\n")[0].replace("\n", " ")
