"""Templates in the words of a command: `{lr}` stands for the value of a parameter, `{i}` for the index of the task.

A closed grammar: a name in braces, and `{{` and `}}` for plain braces. Nothing else may stand in braces, so a template
can reach no attribute, item or format. A value is data: it becomes a part of one word and is not read again. In a
program text such as that of `sh -c` nothing is replaced, for a value there would be run (`program_words.py`).

The command of an array without parameters is no template: `{i}` is replaced in it and every other brace stays.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

from phalanx.core.model.program_words import program_places

INDEX = "i"  # of the task, in the array
NAME_MAX = 64
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_LONE_INDEX = re.compile(
    r"(?<![{$])\{i\}(?!\})"
)  # neither `${i}` nor `{{i}}`: both mean something to other programs
_PART = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]{0,63})\}|[{}]")


class TemplateError(ValueError):
    """A template that cannot be read; `word` is which word of the command it is in, counted from 0."""

    def __init__(self, text: str, word: int = 0) -> None:
        super().__init__(text)
        self.word = word


def is_parameter_name(text: str) -> bool:
    """True for what may name a parameter."""
    return _NAME.fullmatch(text) is not None


def used_names(argv: Sequence[str], known: Collection[str]) -> set[str]:
    """The names that the templates of a command have; TemplateError says what is wrong with one, and where."""
    programs, used = program_places(argv), set[str]()
    for place, word in enumerate(argv):
        if place in programs:
            _refuse_in_program(word, place, known)
        elif "{" in word or "}" in word:
            used |= _names_in(word, place, known)
            if place == 0 and used:  # whoever sees the job is told which program could not be found
                text = "word 1: the program has a parameter, and errors would show its value to everybody"
                raise TemplateError(f"{text}: write env before it", place)
    return used


def fill(argv: Sequence[str], values: Mapping[str, str], index: int | None) -> list[str]:
    """The command with the values in place of the names. It was checked by `used_names` when it was submitted."""
    given = {**values, INDEX: "" if index is None else str(index)}
    return [_filled(word, given) if is_template else word for word, is_template in _marked(tuple(argv))]


def with_index(argv: Sequence[str], index: int) -> list[str] | None:
    """The command of one task of an array without parameters; None if there is no `{i}` in it."""
    places = _index_places(tuple(argv))
    if not places:
        return None
    return [_LONE_INDEX.sub(str(index), word) if place in places else word for place, word in enumerate(argv)]


def index_in_program(argv: Sequence[str]) -> int | None:
    """Which word of such a command is a program text with `{i}` in it, where it stays; None if there is none."""
    return next(
        (place for place in sorted(program_places(argv)) if _has_index(argv[place : place + 1])), None
    )


def _has_index(words: Sequence[str]) -> bool:
    return any(_LONE_INDEX.search(word) for word in words)


@lru_cache(maxsize=256)
def _index_places(argv: tuple[str, ...]) -> frozenset[int]:
    """The words with an `{i}` to replace: the same for all tasks of an array."""
    if not _has_index(argv):
        return frozenset()
    programs = program_places(argv)
    return frozenset(place for place, word in enumerate(argv) if place not in programs and _has_index([word]))


@lru_cache(maxsize=256)
def _marked(argv: tuple[str, ...]) -> tuple[tuple[str, bool], ...]:
    """Each word, and whether there is anything to replace in it: the same for all tasks of a sweep."""
    programs = program_places(argv)
    return tuple(
        (word, place not in programs and ("{" in word or "}" in word)) for place, word in enumerate(argv)
    )


def _filled(word: str, values: Mapping[str, str]) -> str:
    return _PART.sub(lambda found: values[found[1]] if found[1] else found[0][0], word)


def escaped(word: str) -> str:
    """A word as it has to be written for a template to give it back."""
    return word.replace("{", "{{").replace("}", "}}")


def _names_in(word: str, place: int, known: Collection[str]) -> set[str]:
    names = set[str]()
    for found in _PART.finditer(word):
        if found[1] is None and len(found[0]) == 1:
            raise _wrong(word, place, found.start(), known)
        if found[1] is not None and found[1] != INDEX and found[1] not in known:
            text = f"word {place + 1}, character {found.start() + 1}: there is no parameter {found[1]!r}"
            raise TemplateError(f"{text} ({_listed(known)})", place)
        names |= {found[1]} if found[1] else set()
    return names


def _wrong(word: str, place: int, at: int, known: Collection[str]) -> TemplateError:
    near = word[at : at + 40]
    end = near.find("}")
    near = near[: end + 1] if end > 0 else near
    text = f"word {place + 1}, character {at + 1}: {near!r} is not a parameter: write a name in braces"
    return TemplateError(f"{text} ({_listed(known)}), and {{{{ or }}}} for a plain brace", place)


def _refuse_in_program(word: str, place: int, known: Collection[str]) -> None:
    """A name in a program text would be run as code if it were replaced; left as it is, it is not what was meant."""
    for found in _PART.finditer(word):
        name, at = found[1], found.start()
        is_of_shell = at > 0 and word[at - 1] == "$"  # ${lr} is a variable of the shell
        if name and not is_of_shell and (name in known or name == INDEX):
            variable = "PHALANX_ARRAY_INDEX" if name == INDEX else f"PHALANX_PARAM_{name}"
            raise TemplateError(
                f"word {place + 1}, character {at + 1}: {{{name}}} is inside program code, where it would be executed:"
                f' write "${variable}"',
                place,
            )


def _listed(known: Collection[str]) -> str:
    names = [*known, INDEX]
    return "parameters: " + ", ".join(names[:12]) + (", …" if len(names) > 12 else "")
