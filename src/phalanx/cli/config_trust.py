"""`phalanx config trust` and `untrust`: let a project file decide where this user's token goes, or no longer.

Nothing here reads the settings: a file that nobody trusts yet must not be in the way of looking at it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from phalanx.cli.output import OutputOption, Table, clean, emit
from phalanx.config import FREE, digest, from_file, named, project_file, trusted
from phalanx.errors import BadRequest, NotFound

FileArgument = Annotated[
    Path | None,
    typer.Argument(help="A phalanx.toml or pyproject.toml.", show_default="the nearest from here"),
]


def trust(
    file: FileArgument = None,
    list_: Annotated[bool, typer.Option("--list", help="List trusted files.")] = False,
    output: OutputOption = None,
) -> None:
    """Trust a project file as it is now.

    Until it is trusted, and again after each change, it cannot set where your token is sent or what a daemon serves.
    """
    if list_:
        if file is not None:
            raise BadRequest("give a file or --list, not both")
        _list(output)
        return
    path = file or _found()
    body = _body(path)
    values = from_file(path, body)  # which refuses what is none of ours
    trusted().add(path, body)
    shown = {"file": named(path), "sha256": digest(body), "sets": {k: str(v) for k, v in values.items()}}
    emit(shown, output or "table", [named(path)], lambda _wide: _sentences(path, values))


def untrust(file: FileArgument = None) -> None:
    """Stop trusting a project file. A deleted one is named by its path."""
    path = file or _found()
    if not trusted().remove(path):
        raise NotFound(f"{named(path)} was not trusted", hint="`phalanx config trust --list` shows what is")
    print(f"{named(path)} is no longer trusted")


def _found() -> Path:
    path = project_file(Path.cwd())
    if path is None:
        raise NotFound(
            "no phalanx.toml here or in a folder above, nor a pyproject.toml with [tool.phalanx]",
            hint="name the file: `phalanx config trust FILE`",
        )
    return path


def _body(path: Path) -> bytes:
    if path.name not in {"phalanx.toml", "pyproject.toml"}:
        raise BadRequest(f"{path} is not a project file: expected a phalanx.toml or pyproject.toml")
    try:
        return path.read_bytes()
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}") from error


def _sentences(path: Path, values: dict[str, object]) -> list[str]:
    guarded = [f"  {clean(key)} = {clean(str(value))}" for key, value in values.items() if key not in FREE]
    if not guarded:
        return [f"{named(path)} is trusted; it sets nothing that needs it"]
    return [f"{named(path)} is trusted as it is now. It sets:", *guarded]


def _list(output: Any) -> None:
    rows = [
        {"file": file, "sha256": kept, "state": _state(Path(file), kept)}
        for file, kept in sorted(trusted().files().items())
    ]
    emit(rows, output or "table", [row["file"] for row in rows], lambda _wide: _table(rows))


def _table(rows: list[dict[str, str]]) -> Table:
    table = Table("FILE", "STATE", "SHA256", narrows={"FILE": 20})
    for row in rows:
        table.add(row["file"], row["state"], row["sha256"][:16])
    return table


def _state(path: Path, kept: str) -> str:
    try:
        return "trusted" if digest(path.read_bytes()) == kept else "changed: not trusted"
    except OSError:
        return "gone"
