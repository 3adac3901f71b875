"""The variables that tasks get from a command line: `-e`, `--env-file` and `--export`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from phalanx.api.schema.exports import ALL, NONE, chosen, passed
from phalanx.api.schema.jobspec import JobSpec
from phalanx.cli.output import note
from phalanx.config import environment
from phalanx.errors import BadRequest

FILE_BYTES_MAX = 1 << 20
EnvOption = Annotated[
    list[str] | None,
    typer.Option(
        "-e",
        "--env",
        metavar="K[=V]",
        help="Environment variable of the task; without =V, with the value it has here. Repeatable.",
    ),
]
EnvFileOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--env-file",
        metavar="FILE",
        help="File with a variable on each line, NAME=VALUE or NAME, and # comments; repeatable.",
    ),
]
ExportOption = Annotated[
    str | None,
    typer.Option(
        "--export",
        metavar="ALL|NONE|A,B",
        help="Which variables of this shell the task gets.",
        show_default="ALL; NONE with --image",
    ),
]


def given_variables(options: Sequence[str] | None, files: Sequence[Path] | None) -> dict[str, str]:
    """What `-e` and `--env-file` say; the former is stronger, and of several files the last."""
    found: dict[str, str] = {}
    for path in files or ():
        for number, line in enumerate(_lines(path), start=1):
            found |= _of_line(line, f"{path}:{number}")
    for text in options or ():
        found |= _variable(text, "--env")
    return found


def exported_variables(export: str | None, *, in_image: bool = False, default: str = ALL) -> dict[str, str]:
    """What `--export` says. An image has an environment of its own."""
    found, odd = chosen(export or (NONE if in_image else default), environment(), in_image=in_image)
    if odd:
        note(f"warning: not exported, because the value is not UTF-8: {', '.join(map(ascii, odd))}")
    return found


def warn_of_virtualenv(jobs: Iterable[JobSpec]) -> None:
    """A virtual environment that is active here and that these jobs, whose file says all, will not run in."""
    if not any((group.command or group.shell) and not group.image for job in jobs for group in job.groups):
        return
    name = next((name for name in ("VIRTUAL_ENV", "CONDA_PREFIX") if environment().get(name)), None)
    if name is not None:
        active = environment()[name]
        note(f"warning: {name}={active} is not exported, so commands run without it: --export ALL exports it")


def _lines(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            body = file.read(FILE_BYTES_MAX + 1)
        if len(body) > FILE_BYTES_MAX:
            raise BadRequest(f"--env-file: {path} is longer than {FILE_BYTES_MAX} bytes")
        return body.decode().splitlines()
    except OSError as error:
        raise BadRequest(f"--env-file: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadRequest(f"--env-file: {path} is not UTF-8") from None


def _of_line(line: str, where: str) -> dict[str, str]:
    """One line as Compose reads it, but nothing is replaced in it: quotes around a whole value are left out."""
    text = line.strip().removeprefix("export ").strip()
    if not text or text.startswith("#"):
        return {}
    name, equals, value = text.partition("=")
    value = value.strip()
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "'\"":
        value = value[1:-1]
    return _variable(f"{name.strip()}{equals}{value}", where)


def _variable(text: str, where: str) -> dict[str, str]:
    name, equals, value = text.partition("=")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter(f"{text!r} is not UTF-8", param_hint=where) from None
    if not name or not name.isprintable() or " " in name:
        raise typer.BadParameter(f"{text[:80]!r} is not NAME=VALUE or NAME", param_hint=where)
    if not equals and where == "--env" and ("." in name or "/" in name) and name not in environment():
        text = f"{text[:80]!r} is the name of a file, not of a variable: phalanx logs ID has the output of a task"
        raise typer.BadParameter(text, param_hint=where)
    return {name: value if equals else passed(name, environment(), where)}
