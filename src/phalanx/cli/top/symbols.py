"""Symbols: the sign and the colour of a cell. Every cell has a sign, so that nothing is said by colour alone.

The colours are those of Okabe and Ito, which people with every kind of colour blindness can tell apart, each with the
text colour that has the higher contrast on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from string import ascii_letters, ascii_lowercase, ascii_uppercase

from msgspec import Struct


class Symbol(Struct, frozen=True):
    """What a cell shows. `background` empty: the terminal's own."""

    sign: str
    background: str = ""
    foreground: str = ""


_BLACK, _WHITE = "#000000", "#ffffff"
COLOURS = (
    ("#56b4e9", _BLACK),  # sky blue
    ("#e69f00", _BLACK),  # orange
    ("#009e73", _BLACK),  # bluish green
    ("#f0e442", _BLACK),  # yellow
    ("#cc79a7", _BLACK),  # reddish purple
    ("#0072b2", _WHITE),  # blue
    ("#d55e00", _BLACK),  # vermilion
)
SIGNS = ascii_uppercase + ascii_lowercase
FREE = Symbol("·")
UNKNOWN = Symbol("?")
CLOSED = Symbol("-")  # free, but its node takes no work
BROKEN = Symbol("x", "#d55e00", _BLACK)
GONE = Symbol("!", "#d55e00", _BLACK)
FINE = Symbol("+", "#009e73", _BLACK)
DRAINED = Symbol("d", "#f0e442", _BLACK)
BUSY = Symbol("#", "#0072b2", _WHITE)
IDLE = Symbol("i", "#f0e442", _BLACK)
IDLE_LONG = Symbol("I", "#e69f00", _BLACK)


def of_number(number: int) -> Symbol:
    """Of a job: neighbouring numbers differ in sign and colour, and it stays the same as long as the job lives."""
    background, foreground = COLOURS[number % len(COLOURS)]
    return Symbol(SIGNS[number % len(SIGNS)], background, foreground)


def of_names(names: Iterable[str]) -> dict[str, Symbol]:
    """Of users or queues: the first sign of the name that no name before it has taken, in order of the names."""
    found: dict[str, Symbol] = {}
    taken: set[str] = set()
    for at, name in enumerate(sorted(set(names))):
        own = [each for each in name.upper() + name.lower() if each in ascii_letters]
        sign = next((each for each in [*own, *SIGNS] if each not in taken), SIGNS[at % len(SIGNS)])
        taken.add(sign)
        background, foreground = COLOURS[at % len(COLOURS)]
        found[name] = Symbol(sign, background, foreground)
    return found
