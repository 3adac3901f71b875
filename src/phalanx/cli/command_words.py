"""What people who know other programs type, and do not mean: a command as one word, minutes as a bare number, bytes
that are no text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from os import X_OK, access
from pathlib import Path
from shutil import which

import typer

from phalanx.cli.output import note, tell_error
from phalanx.cli.script_lines import tell_directives
from phalanx.core.model.amounts import describe_bytes, parse_bytes, plural
from phalanx.errors import PhalanxError

_ARRAY_RANGE = re.compile(r"([0-9]+)-([0-9]+)")
_WITH_SCRIPTS = re.compile(r"python[0-9.]*|(ba|da|z|k)?sh|perl|ruby|Rscript")
_SHELL_CODE = re.compile(r"-\w*c")  # sh -c, bash -lc
_INDEX_VARIABLE = re.compile(r"\S*?(\$(?:PHALANX_ARRAY_INDEX\b|\{PHALANX_ARRAY_INDEX\}))\S*")
_TIME = re.compile(r"[0-9]+(:[0-9]{2}|[smhd])?")
_DAY_TIME = re.compile(r"([0-9]+-)?[0-9]+:[0-9]{2}:[0-9]{2}|[0-9]+-[0-9]+(:[0-9]{2})?")
MINUTE_S = 60
_TWO_NUMBERS = re.compile(r"([0-9]{1,4}):([0-9]{2})")
_DECIMAL = re.compile(
    r"([0-9]+(?:\.[0-9]+)?) ?([kmgtp])", re.IGNORECASE
)  # with a B it is clear what is meant


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
        _refuse_job_file(words)
        _check_script(words[0])
        tell_directives(words)


def _check_script(word: str) -> None:
    """A file of this folder is looked for in PATH if no slash is in it; one that may not be executed cannot be run."""
    script = Path(word)
    interpreter = _INTERPRETERS.get(script.suffix)
    if interpreter is None or not script.is_file() or which(word) is not None:
        return
    why = "may not be executed" if "/" in word else "is a file here, and no program of PATH"
    raise typer.BadParameter(f"{word} {why}: write {interpreter} {word}", param_hint="CMD")


def _refuse_job_file(words: list[str]) -> None:
    """`submit job.yaml` would run a program of that name."""
    is_file = len(words) == 1 and words[0].endswith((".yaml", ".yml")) and Path(words[0]).is_file()
    if is_file and not access(words[0], X_OK):
        text = f"{words[0]} is a file: write phalanx apply -f {words[0]}"
        raise typer.BadParameter(text, param_hint="CMD")


def tell_missing(words: list[str], folder: str | None, variables: Mapping[str, str]) -> None:
    """A program or a folder that is not here may be on a node, or misspelled: it is named."""
    with suppress(OSError):  # where one may not look, it is not known
        _tell_missing(words, folder, variables)


def _tell_missing(words: list[str], folder: str | None, variables: Mapping[str, str]) -> None:
    if folder is not None and not Path(folder).is_dir():
        note(f"warning: there is no folder {folder} here: the task fails unless its node has it")
    elif words and not _is_here(words[0], folder or ".", variables.get("PATH")):
        place = "in PATH here" if "/" not in words[0] else "here"
        note(f"warning: there is no {words[0]} {place}: the task fails unless its node has it")
    elif words and (script := _script_of(words)) and not _is_here(f"./{script}", folder or ".", None):
        note(f"warning: there is no {script} here: the task fails unless its node has it")


def _script_of(words: list[str]) -> str:
    """The file that an interpreter is to run, if its first argument is clearly one: python -u train.py."""
    if not _WITH_SCRIPTS.fullmatch(Path(words[0]).name):
        return ""
    first = next((word for word in words[1:] if not word.startswith("-") or word in {"-c", "-m"}), "")
    return first if Path(first).suffix in _INTERPRETERS and not first.startswith("/") else ""


def tell_literal_index(words: list[str]) -> None:
    """Without a shell nothing fills in variables: the program gets the text as it stands."""
    for number, word in enumerate(words):
        if _SHELL_CODE.fullmatch(word):
            return
        if number and (found := _INDEX_VARIABLE.fullmatch(word)):
            text = f"{found[1]} reaches the program as it stands, since no shell reads it"
            note(f"warning: {text}; {{i}} is the index of the task")
            return


def refuse_number_after(words: list[str], after: Sequence[str]) -> None:
    """`--after 10 20` would run a program called 20."""
    if after and words and words[0].isdecimal() and which(words[0]) is None:
        text = f"{words[0]} is no program: write --after {after[-1]} --after {words[0]} -- CMD"
        raise typer.BadParameter(text, param_hint="--after")


def _is_here(word: str, folder: str, path: str | None) -> bool:
    """Whether a program is here, as far as can be said: a word in braces is filled in for each task."""
    if "{" in word or "$" in word:
        return True
    return (Path(folder) / word).exists() if "/" in word else which(word, path=path) is not None


def tell_bare_seconds(text: str | None) -> str | None:
    """A time limit as it is. A number alone is seconds here, and minutes for Slurm: that is said."""
    if text is not None and text.strip().isdecimal() and (seconds := int(text.strip()[:9])) > 0:
        larger = f" ({_in_words(seconds)})" if seconds >= MINUTE_S else ""
        meant = f"{plural(seconds, 'second')}{larger}; write {seconds}m for minutes"
        note(f"warning: --time-limit {text} is {meant}")
    if text is not None and (found := _TWO_NUMBERS.fullmatch(text.strip())):
        hours, minutes = (str(int(each)) for each in found.groups())
        meant = f"{hours}m{minutes}s for minutes and seconds, as Slurm reads it"
        note(f"warning: --time-limit {text} is {hours}h{minutes}m; write {meant}")
    return text


def _in_words(seconds: int) -> str:
    """1 hour 30 minutes."""
    (minutes, left), parts = divmod(seconds, MINUTE_S), []
    for count, noun in ((minutes // 60, "hour"), (minutes % 60, "minute"), (left, "second")):
        parts += [plural(count, noun)] if count else []
    return " ".join(parts)


def tell_decimal_memory(text: str) -> str:
    """Memory as it is. Units of powers of 1000 are of 1024 in other schedulers: that is said."""
    if found := _DECIMAL.fullmatch(text.strip()):
        unit = found[2].upper()
        note(
            f"warning: -m {text} is {describe_bytes(parse_bytes(text))} "
            f"(powers of 1000); write {found[1]}{unit}iB for powers of 1024"
        )
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


def told_of(error: PhalanxError, args: Sequence[str]) -> tuple[str, str]:
    """An error and its hint. Of a word that cannot be an id, the word is told, and not a path of the API."""
    if error.reason == "RouteNotFound":
        for word in args:
            if "," in word or word.startswith(":"):
                named = "WORKFLOW:STAGE" if ":" in word else " ".join(word.split(","))
                return f"no job {word[:80]!r}", f"write {named}"
    return error.detail, error.hint


def check_nodes(names: Sequence[str], targets: Sequence[str]) -> None:
    """Lists of nodes as Slurm writes them are refused with ours; a number of nodes is accepted as a name, and told."""
    for name in (*names, *targets):
        if "[" in name or "]" in name:
            raise typer.BadParameter(f"{name!r} is no name: write n1,n2,n3", param_hint="--nodes")
    for target in targets:
        if "," in target and ":" not in target:  # n1:0::0,1 is a node and two of its GPUs
            words = " ".join(f"-t {each}" for each in target.split(",") if each)
            raise typer.BadParameter(f"{target!r} is not one node: write {words}", param_hint="-t")
        if _DAY_TIME.fullmatch(target):
            raise typer.BadParameter(f"{target!r} is no target; a time is --time-limit", param_hint="-t")
        if _TIME.fullmatch(target):
            note(f"warning: -t {target} is a target, the node {target.split(':')[0]}; a time is --time-limit")
    for name in filter(str.isdecimal, names):
        note(
            f"warning: --nodes {name} is a name; {name} tasks on different nodes are --tasks {name} --spread"
        )


def tell_unspelled(args: Sequence[str]) -> int:
    """After a UnicodeEncodeError: name the word that is not UTF-8, and return the exit code. Raises it if none is."""
    odd = next((word for word in args if any("\ud800" <= each <= "\udfff" for each in word)), None)
    if odd is None:
        raise  # noqa: PLE0704 - called where the error is handled
    tell_error(f"{odd!r} is not UTF-8", "")
    return 2
