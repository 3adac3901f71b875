"""What people who know other programs type, and do not mean: a command as one word, minutes as a bare number, bytes
that are no text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from shutil import which

import typer

from phalanx.cli.output import note, tell_error

_ARRAY_RANGE = re.compile(r"([0-9]+)-([0-9]+)")
BARE_SECONDS_MAX = 60  # a smaller number without a unit was likely meant as minutes


_INTERPRETERS = {
    ".py": "python",
    ".sh": "bash",
    ".bash": "bash",
    ".pl": "perl",
    ".rb": "ruby",
    ".R": "Rscript",
}


def check_words(words: list[str], *, is_shell: bool, in_image: bool = False) -> None:
    """A command in quotes is one word, the name of a program with spaces in it. A script here is no program of PATH."""
    if not words:
        raise typer.BadParameter("no command: give the command to run last, after `--`", param_hint="CMD")
    if is_shell and len(words) > 1:
        raise typer.BadParameter("--shell takes one string: put the command in quotes", param_hint="CMD")
    if not is_shell and len(words) == 1 and len(words[0].split()) > 1 and not words[0].startswith(("/", ".")):
        text = f"{words[0]!r} is one word with spaces in it: leave the quotes out, or use --shell"
        raise typer.BadParameter(text, param_hint="CMD")
    if not is_shell and not in_image:
        _check_script(words[0])


def _check_script(word: str) -> None:
    """A file of this folder is looked for in PATH if no slash is in it; one that may not be executed cannot be run."""
    script = Path(word)
    interpreter = _INTERPRETERS.get(script.suffix)
    if interpreter is None or not script.is_file() or which(word) is not None:
        return
    why = "may not be executed" if "/" in word else "is a file here, and no program of PATH"
    raise typer.BadParameter(f"{word} {why}: write {interpreter} {word}", param_hint="CMD")


def tell_bare_seconds(text: str | None) -> str | None:
    """A time limit as it is. A small number alone is seconds here, and minutes elsewhere: that is said."""
    if text is not None and text.isdecimal() and 0 < int(text[:9]) < BARE_SECONDS_MAX:
        unit = "second" if int(text) == 1 else "seconds"
        note(f"warning: --time-limit {text} is {int(text)} {unit}; write {text}m for minutes")
    return text


def tell_lone_range(name: str, values: str) -> str:
    """The values of a parameter as they are. A range as arrays write it is one value: that is said."""
    for value in values.split(","):
        if found := _ARRAY_RANGE.fullmatch(value.strip()):
            text = f"{name}={found[0]} is one value, the text {found[0]!r}"
            note(f"warning: {text}; a range is {name}={found[1]}..{found[2]}")
            break
    return values


def refuse_file_as_command(words: list[str]) -> None:
    """`plan job.yaml` would plan a program of that name."""
    if len(words) == 1 and words[0].endswith((".yaml", ".yml", ".json")) and Path(words[0]).is_file():
        raise typer.BadParameter(f"{words[0]} is a file: write -f {words[0]}", param_hint="CMD")


def tell_unspelled(args: Sequence[str]) -> int:
    """After a UnicodeEncodeError: name the word that is not UTF-8, and return the exit code. Raises it if none is."""
    odd = next((word for word in args if any("\ud800" <= each <= "\udfff" for each in word)), None)
    if odd is None:
        raise  # noqa: PLE0704 - called where the error is handled
    tell_error(f"{odd!r} is not UTF-8", "")
    return 2
