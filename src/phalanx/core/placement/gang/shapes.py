"""What a gang wants, by shape: groups that ask for the same are one shape, since their members can change places.

A quota limits how many members there may be; which of them are left out when not all find a place is decided by
what each group needs, and then by their index.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from phalanx.core.model.queue import Queues
from phalanx.core.model.reason import Reason
from phalanx.core.model.resources import Request
from phalanx.core.model.waiting import WaitingGang, Wanted

Member = tuple[int, int]  # (index in the network, position)


class MemberShape(Struct, frozen=True):
    """Members that ask for the same. `parts` has (group, need, most) of every group they come from."""

    request: Request
    need: int
    most: int
    parts: tuple[tuple[int, int, int], ...]

    def members(self, unit: WaitingGang, count: int) -> list[Member]:
        """The members to place if there is room for `count`, in the order of their index."""
        chosen: list[Member] = []
        others: list[Member] = []
        for group, need, most in self.parts:
            listed = unit.members(group)[:most]
            chosen += listed[:need]
            others += listed[need:]
        if len(chosen) < count:
            others.sort()
            chosen += others[: count - len(chosen)]
        chosen.sort()
        return chosen[:count]


def shapes_of(wanted: Sequence[Wanted]) -> list[MemberShape]:
    """The groups of a gang that still want something, by what they ask for."""
    parts: dict[Request, list[tuple[int, int, int]]] = {}
    for group, each in enumerate(wanted):
        if each.most > 0:
            parts.setdefault(each.request, []).append((group, each.need, each.most))
    return [
        MemberShape(request, sum(need for _, need, _ in each), sum(most for _, _, most in each), tuple(each))
        for request, each in parts.items()
    ]


def admitted(queues: Queues, queue: str, shapes: Sequence[MemberShape]) -> list[int] | Reason:
    """How many members of each shape the quota of a queue admits, or why it does not admit what is needed."""
    needed = [(shape.request, shape.need) for shape in shapes]
    no = queues.lacks(queue, needed, ever=True) or queues.lacks(queue, needed)
    if no is not None:
        return no
    most: list[int] = []
    for at, shape in enumerate(shapes):
        # What was given to the shapes before is counted, and one more of this one.
        taken = [(each.request, count) for each, count in zip(shapes, most, strict=False)]
        left = queues.room(queue, shape.request, [*taken, *needed[at:]])
        more = shape.most - shape.need
        most.append(shape.need + (more if left is None else min(more, left)))
    return most
