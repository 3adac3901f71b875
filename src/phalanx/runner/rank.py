"""Where an attempt stands among the members of its gang: its rank, its node's, and who is on its node.

Ranks follow the roll, which the coordinator wrote. An attempt without a gang stands alone, on its own node. What
a task is told of this is `environment.py`'s business.
"""

from __future__ import annotations

from msgspec import Struct

from phalanx.core.model.orders import Brief, Roll, Start


class Peer(Struct, frozen=True):
    """A node that members stand on, and where others reach it."""

    name: str
    address: str


class Standing(Struct, frozen=True):
    """One attempt's places, counted from 0, and the sizes they are counted in."""

    rank: int
    size: int
    node_rank: int
    nodes: tuple[Peer, ...]
    local_rank: int  # among the members on its node
    local_size: int
    group_rank: int  # among the members of its group
    group_size: int
    leader: Peer  # the node of rank 0
    is_alone: bool = False
    is_mixed: bool = False  # whether there are members of other groups
    port: int = 0  # where rank 0 listens; 0: nobody said
    meeting: int = 0  # the formation that all members meet under
    most_devices: int = -1  # of any member; −1: nobody said

    @property
    def is_one_process_each(self) -> bool:
        """Whether every member is one process, with one device or none, as far as this one can know."""
        return not self.is_mixed if self.most_devices < 0 else self.most_devices <= 1


def standing(start: Start, brief: Brief, roll: Roll | None, here: Peer, port: int = 0) -> Standing:
    """Read it off the roll; alone with a port of its own, if there is none or it does not name this attempt."""
    position = start.key[1]
    members = () if roll is None else roll.members
    rank = next((at for at, member in enumerate(members) if member[0] == position), None)
    if roll is None or rank is None:
        within = position - brief.group_first
        return Standing(0, 1, 0, (here,), 0, 1, within, brief.group_tasks, here, is_alone=True, port=port)
    nodes = tuple(Peer(name, address or name) for name, address in roll.nodes)
    node_rank = members[rank][1]
    local = [each for each, node in members if node == node_rank]
    last = brief.group_first + brief.group_tasks - 1
    group = [each for each, _ in members if each == position or brief.group_first <= each <= last]
    return Standing(
        rank,
        len(members),
        node_rank,
        nodes,
        local.index(position),
        len(local),
        group.index(position),
        len(group),
        nodes[members[0][1]],
        is_mixed=len(group) < len(members),
        port=roll.port,
        meeting=roll.meeting or roll.formation,
        most_devices=roll.most_devices,
    )
