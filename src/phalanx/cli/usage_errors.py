"""Mistakes on a command line: what Click says of them, in words of everybody, and where to read more."""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Sequence

import typer

from phalanx.cli.foreign_words import BY_RESUBMIT, OUR_LOGS, TAKES_A_JOB, by_resubmit, our_option

_UNKNOWN_OPTION = r"^(No such option: (\S+)) \(Possible options: (.*)\)$"


def plain(message: str, *, is_known: bool = False) -> str:
    """What Click says of a wrong number or option, in words of everybody. `is_known`: the hint has what was meant."""
    message = re.sub(_UNKNOWN_OPTION, r"\1" if is_known else _nearest, message)
    message = re.sub(r"(\S+) is not in the range x>=(\S+)\.$", r"\1 is too low: \2 is the least.", message)
    message = re.sub(
        r"(\S+) is not in the range (\S+)<=x<=(\S+)\.$", r"\1 is not between \2 and \3.", message
    )
    message = re.sub(r"is not a valid (int|integer)( range)?\.", "is not a whole number.", message)
    return re.sub(r"is not a valid float( range)?\.", "is not a number.", message)


def _nearest(said: re.Match[str]) -> str:
    """The option that was probably meant: the most similar one, not all that are a little similar."""
    possible = said[3].split(", ")
    near = difflib.get_close_matches(said[2], possible, n=1, cutoff=0.0)
    return f"{said[1]}; did you mean {near[0]}?"


def foreign_hint(error: typer.TyperException) -> str:
    """What to use instead of an option of another scheduler; empty if it is none."""
    ctx, option = getattr(error, "ctx", None), getattr(error, "option_name", None)
    if ctx is None or option is None:
        return ""
    return our_option(ctx.command_path.partition(" ")[2], option)


def _gpus_hint(error: typer.TyperException) -> str:
    """`--gpus h100:2` as Slurm has it."""
    found = re.search(r"'([A-Za-z][\w-]*):([0-9]+)' is not", plain(error.format_message()))
    if found is None or "--gpus" not in getattr(getattr(error, "param", None), "opts", []):
        return ""
    return f"write --gpus {found[2]} --gpu-type {found[1]}"


def _output_hint(error: typer.TyperException, command: str) -> str:
    """Where the output of a task is, for one who gives `-o FILE` as other schedulers take it."""
    opts = getattr(getattr(error, "param", None), "opts", [])
    is_file = "--output" in opts and command in TAKES_A_JOB
    return f"-o is the format of what phalanx prints; for the output of a task, {OUR_LOGS}" if is_file else ""


def _update_hint(error: typer.TyperException, args: Sequence[str]) -> str:
    """`update 18 --gpus 4`: the command that does it, with this job and this value."""
    option = str(getattr(error, "option_name", ""))
    words = [part for word in args for part in (word.split("=", 1) if word.startswith("-") else [word])]
    if "update" not in words or option not in BY_RESUBMIT or option not in words:
        return ""
    after = words[words.index("update") + 1 :]
    at = after.index(option)
    value = after[at + 1] if at + 1 < len(after) else ""
    ids = [word for word in after[:at] if not word.startswith("-")] or after[at + 2 : at + 3]
    return by_resubmit(
        option, shlex.quote(ids[0]) if len(ids) == 1 else "ID", shlex.quote(value) if value else ""
    )


def usage_hint(error: typer.TyperException, args: Sequence[str] = ()) -> str:
    """What to use instead of an option of another scheduler, or where to read more: the help of the command."""
    ctx = getattr(error, "ctx", None)
    if ctx is None:
        return ""
    if ours := _update_hint(error, args) or foreign_hint(error):
        return ours
    command = ctx.command_path.rpartition(" ")[2]
    if meant := _gpus_hint(error) or _output_hint(error, command):
        return meant
    given = getattr(getattr(error, "param", None), "opts", [])
    if error.format_message().startswith("Missing option") and "--file" in given:
        return f"the file is given with -f: {ctx.command_path} -f FILE"
    return f"see `{ctx.command_path} --help`"
