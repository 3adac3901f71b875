"""What a gang wants, by shape: groups that ask for the same are one shape, since their members can change places.

A quota limits how many members there may be; which of them are left out when not all find a place is decided by
what each group needs, and then by their index.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from phalanx.core.model import reason
from phalanx.core.model.queue import Queues, Usage
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
    quota = queues.quotas.get(queue)
    if quota is None:
        return [shape.most for shape in shapes]
    used = queues.usage.get(queue) or Usage()
    terms = [
        ("tasks", quota.tasks, used.tasks, [1 for _ in shapes]),
        ("cores", quota.cores, used.cores, [shape.request.cores for shape in shapes]),
        ("bytes of memory", quota.memory_bytes, used.memory_bytes, [s.request.memory_bytes for s in shapes]),
        ("GPUs", quota.gpus, used.gpus, [shape.request.gpus for shape in shapes]),
    ]
    left: list[
        tuple[int, list[int]]
    ] = []  # (what may be taken beyond what is needed, what each shape asks of it)
    for word, limit, held, asked in terms:
        if limit is not None:
            needed = sum(shape.need * each for shape, each in zip(shapes, asked, strict=True))
            if needed > limit:
                return reason.exceeds_quota(queue, word, needed, limit)
            if needed and held + needed > limit:
                return reason.quota_exhausted(queue, word, needed, held, limit)
            left.append((limit - held - needed, asked))
    most: list[int] = []
    for at, shape in enumerate(shapes):
        rooms = [room // asked[at] for room, asked in left if asked[at]]
        more = max(0, min([shape.most - shape.need, *rooms]))
        left = [(room - more * asked[at], asked) for room, asked in left]
        most.append(shape.need + more)
    return most
