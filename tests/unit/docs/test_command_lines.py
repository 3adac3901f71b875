"""Every command line of the README and the guides is one that `phalanx` accepts: options and arguments exist.

Lines of code blocks are parsed whole, as the program does before it runs anything. What stands in backticks within a
sentence may leave arguments out, so only its command and its options are looked up.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from phalanx.cli.main import app
from phalanx.errors import PhalanxError

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELLS = {"", "sh", "bash", "console", "text"}
SPAN = re.compile(r"`([^`\n]+)`")
INDENTED = re.compile(r"^    (\$ )?phalanx .*$", re.MULTILINE)
SUBSTITUTED = re.compile(r"\$\((phalanx [^)]*)\)")
ENDS = {"|", "||", "&&", ";", "&", ">", ">>", "<", ")"}
SYNOPSIS = re.compile(r"[\[\]…|]")  # [optional], more of them, one of several
ROOT_COMMAND = typer.main.get_command(app)


def blocks(text: str) -> Iterator[str]:
    """The lines of code that call phalanx, whole."""
    lines = [each.group() for each in INDENTED.finditer(FENCE.sub("", text))]
    for block in (block for language, block in FENCE.findall(text) if language in SHELLS):
        lines += block.replace("\\\n", " ").splitlines()
    for line in filter(re.compile(r"\bphalanx ").search, lines):
        yield from SUBSTITUTED.findall(line)
        yield from commands(SUBSTITUTED.sub("ID", line.strip().removeprefix("$ ")))


def commands(line: str) -> Iterator[str]:
    """The calls of phalanx in a line of shell."""
    words = shlex.shlex(line, posix=False, punctuation_chars=True)
    words.whitespace_split, words.quotes, words.commenters = True, "'\"", "#"
    call: list[str] = []
    for word in [*words, ";"]:
        if word in ENDS:
            if call[:1] == ["phalanx"]:
                yield " ".join(call)
            call = []
        else:
            call.append(word)


def spans(text: str) -> Iterator[str]:
    """What stands in backticks and begins with phalanx."""
    for span in SPAN.findall(FENCE.sub("", text)):
        if span.startswith("phalanx "):
            yield span


def whole(page: Path) -> list[str]:
    return [*blocks(page.read_text("utf-8"))]


def parts(page: Path) -> list[str]:
    return [*spans(page.read_text("utf-8"))]


def parse(line: str) -> None:
    """Read a whole command line as the program does, without running it; raises what it would say."""
    args = shlex.split(line)[1:]
    command, parent, name = ROOT_COMMAND, None, "phalanx"
    while True:
        context: Any = command.make_context(name, list(args), parent=parent)
        rest = [*getattr(context, "_protected_args", []), *context.args]
        if not hasattr(command, "resolve_command") or not rest:
            return
        name, command, args = command.resolve_command(context, rest)
        parent = context


def unknown(line: str) -> str:
    """Which word of a part of a command line `phalanx` does not know; nothing if it knows all."""
    words = re.split(r"[\s\[\]]+", line.replace("`", ""))[1:]
    command: Any = ROOT_COMMAND
    context = command.make_context("phalanx", ["--version"], resilient_parsing=True)
    for word in words:
        if word == "--":
            return ""
        if word.startswith("-") and len(word) > 1:
            option = word.partition("=")[0].rstrip("….,;:")
            known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
            if option not in {*known, "-h", "--help"}:
                return f"{option} of {line}"
        elif hasattr(command, "get_command") and (found := command.get_command(context, word.rstrip("…,"))):
            command = found
        elif hasattr(command, "get_command") and command is ROOT_COMMAND and word not in {"…", "<noun>"}:
            return f"{word} of {line}"
    return ""


def wrong(lines: list[str]) -> list[str]:
    """The command lines that are refused, and how."""
    found = []
    for line in lines:
        if SYNOPSIS.search(line):
            found += [each for each in [unknown(line)] if each]
            continue
        try:
            parse(line)
        except (typer.TyperException, PhalanxError) as error:
            said = error.format_message() if isinstance(error, typer.TyperException) else error.detail
            found.append(f"{line}: {said}")
        except typer.Exit:
            pass
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_command_line_of_a_page_is_accepted(page: Path):
    assert wrong(whole(page)) == []
    assert [each for each in map(unknown, parts(page)) if each] == []


def test_the_first_five_minutes_need_no_file_of_ones_own():
    text = (ROOT / "README.md").read_text("utf-8").partition("## Five minutes")[2].partition("\n## ")[0]
    first, *_ = FENCE.findall(text)
    assert "phalanx submit" in first[1]
    assert " ./" not in first[1]


def test_there_are_command_lines_to_look_at():
    assert len([line for page in PAGES for line in whole(page)]) > 100
    assert len([line for page in PAGES for line in parts(page)]) > 100


TEXT = """
```sh
phalanx submit --gpu 1 -- true      # no such option
phalanx ps --mine; phalanx pss
a=$(phalanx submit --array 1-2 -- true) && phalanx show
```
    phalanx submit --gpus many -- true
and `phalanx ps --mines`, `phalanx nodess`, `phalanx update ID [--priority N]`
"""


def test_what_does_not_exist_is_found():
    assert [each.partition(": ")[0] for each in wrong([*blocks(TEXT)])] == [
        "phalanx submit --gpus many -- true",
        "phalanx submit --gpu 1 -- true",
        "phalanx pss",
        "phalanx show",
    ]
    assert [each for each in map(unknown, spans(TEXT)) if each] == [
        "--mines of phalanx ps --mines",
        "nodess of phalanx nodess",
    ]
