"""Which nodes of a domain are good enough for a gang: those of the lowest grades that hold all of it.

The grade of a node says how precious what it has is (`core/model/score.py`). Where a domain has enough room on nodes of
low grades, its other nodes are left alone. Where that is, is decided in `search.py`.
"""

from __future__ import annotations

import numpy as np

from phalanx.core.model.tree import Column, Tree
from phalanx.core.placement.gang.spread import Field

GRADES_MAX = 8  # of more grades the highest are taken for one


class Grades:
    """The room of every domain on nodes of the first grade, of the first two, and so on."""

    def __init__(
        self, tree: Tree, slots: Column, grades: Column, multiples: tuple[int, ...], held: Column | None
    ) -> None:
        self._tree, self._slots, self._grades = tree, slots, grades
        self._multiples, self._held = multiples, held
        self._limits: list[int] = np.unique(grades[slots > 0])[: GRADES_MAX - 1].tolist()
        self._fields: list[Field] = []

    @property
    def is_one(self) -> bool:
        """Whether every node that has room is as good as any other."""
        return len(self._limits) <= 1

    def needed(self, level: int, count: int) -> Column:
        """How many grades each domain of a level has to use to hold so many."""
        found: Column = np.full(self._tree.size(level), len(self._limits), dtype=np.int64)
        for number in range(len(self._limits) - 1, -1, -1):
            found[self._field(number).at(level) >= count] = number
        return found

    def field(self, level: int, number: int, count: int) -> Field | None:
        """The room on the nodes that suffice for so many in one domain; None if it takes all of them."""
        for at in range(len(self._limits)):
            if int(self._field(at).at(level)[number]) >= count:
                return self._field(at)
        return None

    def _field(self, number: int) -> Field:
        while len(self._fields) <= number:
            limit = self._limits[len(self._fields)]
            slots = np.where(self._grades <= limit, self._slots, 0)
            self._fields.append(Field(self._tree, slots, None, self._multiples, self._held))
        return self._fields[number]
