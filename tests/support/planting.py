"""Planted bugs stay armed: what is patched must exist, and what was put in its place must have been called.

`pytest.MonkeyPatch.setattr` refuses a name that is not there. This one also counts the calls of every function it puts
in, so that a patched name that nothing uses any more fails the test. Several patches of one name, as in all modules
that import it, count together. Constants and classes are not counted.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import pytest


class CountingPatch:
    """Patches like a `pytest.MonkeyPatch`, and knows which of the planted functions were called."""

    def __init__(self) -> None:
        self._patch = pytest.MonkeyPatch()
        self.calls: Counter[str] = Counter()

    def setattr(self, target: Any, name: Any, *value: Any, **how: Any) -> None:
        """An owner, a name and a value; or a dotted name and a value."""
        if value and isinstance(value[0], FunctionType):
            self.calls[name] += 0
            value = (self._counted(name, value[0]), *value[1:])
        self._patch.setattr(target, name, *value, **how)

    def setitem(self, table: Any, key: Any, value: FunctionType) -> None:
        """A key of a table of functions and a value."""
        name = getattr(key, "__name__", str(key))
        self.calls[name] += 0
        self._patch.setitem(table, key, self._counted(name, value))

    @contextmanager
    def context(self) -> Iterator[CountingPatch]:
        """Patches for the length of a block, counted with the others."""
        inner = CountingPatch()
        inner.calls = self.calls
        try:
            yield inner
        finally:
            inner.undo()

    def undo(self) -> None:
        self._patch.undo()

    @property
    def unused(self) -> list[str]:
        return sorted(name for name, count in self.calls.items() if not count)

    def _counted(self, name: str, function: FunctionType) -> Any:
        @functools.wraps(function)
        def counted(*given: Any, **named: Any) -> Any:
            self.calls[name] += 1
            return function(*given, **named)

        return counted
