"""That losses are held back: most nodes fell silent at once, and that is rarely their fault."""

from __future__ import annotations

from msgspec import Struct


class Brake(Struct, frozen=True):
    """Most nodes fell silent at once, so for now nobody is declared lost."""

    at: float
    silent: int
    nodes: int  # those that were there
