"""What Typer does not do with the words of a command line: lists of files, commands of users, repeated options."""

from __future__ import annotations

from collections import Counter
from typing import Any

from typer.core import TyperCommand

from phalanx.cli.output import note

_FILE_OPTIONS = ("-f", "--file", "--cluster")


class OptionsOnce(TyperCommand):
    """A command that says which of its options were given several times where only the last value counts."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        self._tell_repeated(ctx, args)
        return super().parse_args(ctx, args)

    def _tell_repeated(self, ctx: Any, args: list[str]) -> None:
        if len(args) < 2 or ctx.resilient_parsing:
            return
        _, _, given = self.make_parser(ctx).parse_args(args=[*args])
        counts = Counter(each.name for each in given if each.param_type_name == "option")
        for each in self.params:
            option: Any = each
            is_one = each.param_type_name == "option" and not (
                option.multiple or option.is_flag or option.count
            )
            if is_one and counts[each.name] > 1:
                note(f"warning: {each.opts[-1]} is given {counts[each.name]} times; only the last one counts")


class FileLists(OptionsOnce):
    """A command whose options that name files may be followed by several."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, repeated(args))


class CommandLast(OptionsOnce):
    """A command that takes a user's command behind `--`; without `--`, everything behind the first argument."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.allow_interspersed_args = "--" in args
        return super().parse_args(ctx, args)


def repeated(args: list[str]) -> list[str]:
    """`-f a.yaml b.yaml` as `-f a.yaml -f b.yaml`; what follows `--` belongs to the user's command."""
    found: list[str] = []
    option, has_value = "", False
    for at, word in enumerate(args):
        if word == "--":
            return found + args[at:]
        if word.startswith("-") and word != "-":
            option, equals, _ = word.partition("=")
            has_value = bool(equals)
        elif option in _FILE_OPTIONS:
            if has_value:
                found.append(option)
            has_value = True
        found.append(word)
    return found
