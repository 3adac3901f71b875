"""Which words of a command are program texts, such as TEXT in `bash -lc TEXT`: a value inserted there would be run.

A closed list of interpreters and their options, each of which may stand anywhere in a command (`env -i timeout 5 sh -c
TEXT`). Of two readings the one is taken that inserts less: options that come after a script count as the interpreter's
own. What a program that is not listed does with its arguments cannot be known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct


class Interpreter(Struct, frozen=True):
    """Options after which a program text comes, or that hold it themselves: `-Ic TEXT`, `-eTEXT`, `--eval=TEXT`."""

    flags: str  # letters that may stand before the one that means code
    code: str
    long: tuple[str, ...] = ()

    def places(self, word: str, place: int) -> set[int]:
        """Where the text is that this option takes: in the word itself, or in the next one."""
        if word.startswith("--"):
            name, equals, _ = word.partition("=")
            return set() if name not in self.long else {place} if equals else {place + 1}
        rest = word[1:].lstrip(self.flags) if word.startswith("-") else ""
        if not rest or rest[0] not in self.code:
            return set()
        if self is _ANY and rest != "c":
            return set()
        is_cluster = set(rest[1:]) <= set(self.flags + self.code)  # no text, but further options
        return {place, place + 1} if is_cluster else {place}


# `-C` and `--init-command` are fish's; of the other shells none takes a word after -C.
_SHELL = Interpreter(
    "abdefghiklmnopqrstuvwxyzBDEFGHIJKLMNOPQRSTUVWXYZ0123456789", "cC", ("--command", "--init-command")
)
_ANY = Interpreter("", "c", ("--command",))  # of every program, known or not: `-c TEXT`, `--command TEXT`
_ENV = Interpreter("iv0", "S", ("--split-string",))
_PYTHON = Interpreter("bBdEhiIOPqRsSuvVx", "c")
_NODE = Interpreter(  # a module may be a text, too: `--import data:text/javascript,TEXT`
    "i", "epr", ("--eval", "--print", "--import", "--require", "--loader", "--experimental-loader")
)
_OTHER = Interpreter("ilnpqv", "eE", ("--eval", "--execute", "--print"))
_INTERPRETERS = {
    "env": _ENV,
    "perl": Interpreter("acdfghilnpsStTuUvVwWXx0123456789.", "eEmMD"),
    "ruby": Interpreter("aclnpsSvwyUhd0123456789", "e"),
    "php": Interpreter("nq", "rBRE", ("--run", "--process-begin", "--process-code", "--process-end")),
    **dict.fromkeys(("node", "nodejs", "bun", "deno"), _NODE),
    **dict.fromkeys(("python", "pypy", "ipython", "jython", "micropython"), _PYTHON),
    **dict.fromkeys(
        ("lua", "luajit", "r", "rscript", "julia", "osascript", "raku", "elixir", "groovy"), _OTHER
    ),
}
_SHELLS = frozenset(
    {
        "sh",
        "bash",
        "rbash",
        "dash",
        "ash",
        "zsh",
        "ksh",
        "mksh",
        "yash",
        "fish",
        "csh",
        "tcsh",
        "su",
        "runuser",
    }
)
_VERSION = re.compile(r"[-.0-9]+$")


def program_places(argv: Sequence[str]) -> frozenset[int]:
    """Which words of a command are program texts, wholly or in part."""
    return frozenset(_places(argv, split=False))


def _places(argv: Sequence[str], *, split: bool) -> set[int]:
    """The same; `split`: of a command that comes out of a text of env, where all behind a further text counts."""
    places = set(_after_eval(argv))
    known: set[Interpreter] = set()
    looked_to = -1
    for place, word in enumerate(argv):
        for each in (_ANY, *known):
            taken = each.places(word, place)
            places |= taken
            if each is _SHELL and place + 1 in taken and place > looked_to:
                looked_to = _first_argument(argv, place)
                places.add(looked_to)
            elif each is _ENV and taken and split:
                return places | set(range(place, len(argv)))
            elif each is _ENV and taken:
                split = True  # one is looked into, which bounds the work
                places |= _after_split(argv, max(taken))
        if (found := _interpreter(word)) is not None:
            known.add(found)
    return places


def _interpreter(word: str) -> Interpreter | None:
    """The interpreter of this name, in whichever folder and version."""
    name = word.rpartition("/")[2].lower().removesuffix(".exe")
    name = _VERSION.sub("", name)
    return _SHELL if name in _SHELLS else _INTERPRETERS.get(name)


def _first_argument(argv: Sequence[str], place: int) -> int:
    """Where a shell finds its program: `sh -c -e -o pipefail TEXT`. Options may follow -c, and -o takes a word."""
    values = 0
    while place < len(argv):
        word = argv[place]
        if word[:1] in ("-", "+") and len(word) > 1:
            if word == "--":
                return place + 1
            values += word.count("o") + word.count("O") if not word.startswith("--") else 0
        elif values:
            values -= 1
        else:
            return place
        place += 1
    return place


def _after_split(argv: Sequence[str], place: int) -> set[int]:
    """`env -S "bash -c" TEXT`: the words of the text come before those that follow it."""
    text = argv[place] if place < len(argv) else ""
    words = text.removeprefix("--split-string=").lstrip("-iv0S").split()
    found = _places((*words, *argv[place + 1 :]), split=True)
    return {each - len(words) + place + 1 for each in found if each >= len(words)}


def _after_eval(argv: Sequence[str]) -> Iterator[int]:
    """`eval` and `deno eval` run all words that follow."""
    for place, word in enumerate(argv[:2]):
        if word == "eval" and (place == 0 or _interpreter(argv[0]) is _NODE):
            yield from range(place + 1, len(argv))
