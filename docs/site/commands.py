"""A page for each command, made from the command line's own help; the man pages are made from the same pages.

A noun (`phalanx node`) and its verbs share a page. A verb that is also a command of its own is described there.
"""

from __future__ import annotations

import inspect
import re
from functools import cache
from typing import Any

import typer

from phalanx.cli.main import COMMANDS, CommandGroup, Daemon, app

FOLDER = "reference/commands"
_PHRASE = re.compile(r"<([a-z|.-]+(?: range)?)>")


@cache
def pages() -> dict[str, str]:
    """Every page by its place on the site."""
    root = typer.Context(_root(), info_name="phalanx")
    found = {f"{FOLDER}/phalanx.md": _root_page(root)}
    for name, entry in COMMANDS.items():
        found[f"{FOLDER}/{name}.md"] = _page(name, entry, root)
    return found


def manuals() -> list[tuple[str, str, str, str, int]]:
    """What Sphinx's builder of man pages wants: page, name, one line, author, section of the manual."""
    root = typer.Context(_root(), info_name="phalanx")
    found = [(f"{FOLDER}/phalanx", "phalanx", _first(_root().help), "", 1)]
    for name in COMMANDS:
        help_text = _command(root, name).help
        found.append((f"{FOLDER}/{name}", f"phalanx-{name}", _first(help_text), "", 1))
    return found


def listing() -> str:
    """The commands as a list with a line for each, for the page about the command line."""
    root = typer.Context(_root(), info_name="phalanx")
    lines = [
        f"- [`phalanx {name}`](commands/{name}.md): {_first(_command(root, name).help)}" for name in COMMANDS
    ]
    lines.append("- [Options of every command](commands/phalanx.md)")
    names = "\n".join(f"commands/{name}" for name in (*COMMANDS, "phalanx"))
    tree = f"```{{toctree}}\n:hidden:\n\n{names}\n```\n"
    return "\n## Commands\n\n" + "\n".join(lines) + f"\n\n{tree}"


def _root() -> Any:
    return typer.main.get_command(app)


def _command(parent: typer.Context, name: str) -> Any:
    group: Any = parent.command
    return group.get_command(parent, name)


def _root_page(root: typer.Context) -> str:
    listed = [f"- `phalanx {name}`: {_first(_command(root, name).help)}" for name in COMMANDS]
    return (
        "# phalanx\n\n## Synopsis\n\n`phalanx [OPTIONS] COMMAND [ARGS]...`\n\n"
        f"## Description\n\n{_text(_root().help)}\n\n"
        f"{_options(_root(), root, '## ')}## Commands\n\n" + "\n".join(listed) + "\n"
    )


def _page(name: str, entry: str | CommandGroup | Daemon, root: typer.Context) -> str:
    command = _command(root, name)
    context = typer.Context(command, info_name=name, parent=root)
    text = f"# phalanx {name}\n\n" + _body(command, context, "## ")
    if not isinstance(entry, str):
        for verb, home in entry.verbs.items():
            text += f"\n## phalanx {name} {verb}\n\n"
            if home in COMMANDS.values():
                same = next(each for each, other in COMMANDS.items() if other == home)
                text += f"The same as [`phalanx {same}`]({same}.md).\n"
            else:
                below = _command(context, verb)
                text += _body(below, typer.Context(below, info_name=verb, parent=context), "### ")
    return text


def _body(command: Any, context: typer.Context, level: str) -> str:
    usage = command.get_usage(context).removeprefix("Usage: ")
    usage = " ".join(usage.split())
    description = f"{level}Description\n\n{_text(command.help)}\n\n"
    return f"{level}Synopsis\n\n`{usage}`\n\n{description}{_options(command, context, level)}"


def _options(command: Any, context: typer.Context, level: str) -> str:
    parts = {"argument": f"{level}Arguments\n\n", "option": f"{level}Options\n\n"}
    text = ""
    for kind, title in parts.items():
        records = [
            record
            for parameter in command.get_params(context)
            if parameter.param_type_name == kind and (record := parameter.get_help_record(context))
        ]
        if records:
            text += title + "".join(_record(left, right) for left, right in records) + "\n"
    return text


def _record(left: str, right: str) -> str:
    signature = _PHRASE.sub(lambda kind: f"<{kind[1].removesuffix(' range')}>", left)
    text = _escaped(" ".join(right.split()))
    return f"- `{signature}`" + (f": {text}\n" if text else "\n")


def _escaped(text: str) -> str:
    """Help is plain text: what Markdown would read as a sign of its own stands for itself."""
    return re.sub(r"([<>*_\[\]])", r"\\\1", text)


def _text(help_text: str | None) -> str:
    """Paragraphs of a command's help; those that are indented are examples."""
    paragraphs = inspect.cleandoc(help_text or "").replace("\b\n", "").split("\n\n")
    return "\n\n".join(
        f"```sh\n{inspect.cleandoc(each)}\n```" if each.startswith("    ") else _paragraph(each)
        for each in paragraphs
    )


def _paragraph(text: str) -> str:
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else _escaped(part) for part in parts)


def _first(help_text: str | None) -> str:
    return _text(help_text).partition("\n\n")[0].replace("\n", " ").rstrip(".")
