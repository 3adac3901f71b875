"""Which models and datasets nodes have loaded, and when each was used last.

A node has what tasks that ended well there asked for; a task may correct that in its result. The time is that of the
last use of each name, so a model that is served all day does not grow old, and one that is used again makes no other
one young.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping

NAMES_MAX = 1000  # of one node; the one that was used longest ago is forgotten first


class Contexts:
    """Names by node and nodes by name."""

    def __init__(self) -> None:
        self.by_node: dict[str, OrderedDict[str, float]] = {}  # the name used last at the end
        self._by_name: dict[str, dict[str, float]] = {}

    def use(self, node: str, names: Iterable[str], at: float) -> None:
        """A node used these now."""
        held = self.by_node.setdefault(node, OrderedDict())
        for name in names:
            held[name] = at
            held.move_to_end(name)
            self._by_name.setdefault(name, {})[node] = at
        while len(held) > NAMES_MAX:
            self.drop(node, [next(iter(held))])
        if not held:
            del self.by_node[node]

    def drop(self, node: str, names: Iterable[str]) -> None:
        """A node has these no longer."""
        held = self.by_node.get(node, OrderedDict())
        for name in names:
            if held.pop(name, None) is None:
                continue
            others = self._by_name[name]
            del others[node]
            if not others:
                del self._by_name[name]
        if not held:
            self.by_node.pop(node, None)

    def forget_node(self, node: str) -> None:
        self.drop(node, list(self.by_node.get(node, ())))

    def hits(self, names: Iterable[str], now: float, within_s: float) -> dict[str, int]:
        """How many of these names each node has, if it used them within so many seconds; 0 seconds: ever."""
        found: dict[str, int] = {}
        for name in names:
            for node, at in self._by_name.get(name, {}).items():
                if within_s <= 0 or now - at <= within_s:
                    found[node] = found.get(node, 0) + 1
        return found

    def image(self) -> dict[str, dict[str, float]]:
        return {node: dict(names) for node, names in self.by_node.items()}

    def restore(self, image: Mapping[str, Mapping[str, float]]) -> None:
        for node, names in image.items():
            for name, at in names.items():
                self.use(node, (name,), at)
