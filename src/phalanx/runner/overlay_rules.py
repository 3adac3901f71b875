"""The firewall of a node's task networks, as commands for nft.

Tasks of one owner reach each other; those of different owners do not. A packet from a task must have the task's own
address. Neither this node nor anything outside the overlay network can be reached from a task's network, and so not the
control plane; answers to connections from there can. Of the processes in a node's own network only tasks reach
addresses, those of their owner (`overlay_owners.py` says how they are recognised); what comes from another node's own
network was examined there.

The chains stay as they are, and what changes with tasks is in sets: a change of their elements takes the kernel a
fraction of a millisecond, a new table up to twenty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct

from phalanx.core.model.overlay import gateway
from phalanx.runner.overlay_owners import NodeTasks

NOBODY = NodeTasks({}, {})
PORT = 8473  # of UDP, for VXLAN
# What a node itself says to tasks: answers to their pings, and why a packet of theirs was not passed on.
_FROM_KERNEL = "icmp type { echo-reply, destination-unreachable, time-exceeded, parameter-problem }"
CGROUPS = "cgroups"  # and a level: the map of owners by cgroup
_PIECE = 500  # elements in one command


class FirewallNames(NamedTuple):
    """How that of one runner is called: its table, what its tasks' links begin with, and its link to other nodes."""

    table: str
    links: str
    vxlan: str


class Rules(Struct, frozen=True):
    """One state of the firewall."""

    table: str
    chains: tuple[str, ...]  # with the sets they use
    elements: dict[str, frozenset[str]]  # by the name of the set

    def whole(self) -> str:
        """Commands that put this in the place of whatever there is."""
        made = [f"table inet {self.table} {{}}", f"delete table inet {self.table}", *self.chains]
        return "\n".join([*made, *self._added(self.elements), ""])

    def change(self, former: Rules) -> str | None:
        """Commands that make this of a former state; None if only a new table will do."""
        if (former.table, former.chains) != (self.table, self.chains):
            return None
        gone: list[str] = []
        new: dict[str, frozenset[str]] = {}
        for name, wanted in self.elements.items():
            had = former.elements[name]
            if name.startswith(CGROUPS) and had - wanted:  # nft finds no cgroup that was removed
                gone.append(f"flush map inet {self.table} {name}")
                had = frozenset()
            gone += self._elements("delete", name, had - wanted)
            new[name] = wanted - had
        return "\n".join([*gone, *self._added(new), ""])

    def _added(self, elements: Mapping[str, frozenset[str]]) -> list[str]:
        return [line for name, listed in elements.items() for line in self._elements("add", name, listed)]

    def _elements(self, verb: str, name: str, elements: frozenset[str]) -> list[str]:
        listed = sorted(elements)
        pieces = [listed[at : at + _PIECE] for at in range(0, len(listed), _PIECE)]
        return [f"{verb} element inet {self.table} {name} {{ {', '.join(piece)} }}" for piece in pieces]


def ruleset(
    names: FirewallNames,
    subnet: str,
    tasks: Mapping[str, str],
    owners: Mapping[str, str],
    blocks: Iterable[str],
    here: NodeTasks = NOBODY,
    marks: dict[str, int] | None = None,
) -> Rules:
    """The firewall of one runner.

    `tasks` are the addresses of this node's tasks by their links; `owners` are those of addresses anywhere, as far as
    they have tasks here; `here` are the tasks in the node's own network. `marks` are the numbers that owners had
    before, and is added to. The first of `blocks` is this node's.
    """
    own, *others = blocks
    marks = {} if marks is None else marks
    for owner in sorted(set(owners.values()) - marks.keys()):
        marks[owner] = max(marks.values(), default=0) + 1
    elements = {
        "source": frozenset(f'"{link}" . {ip}' for link, ip in tasks.items()),
        "allowed": frozenset(f"{ip} . {marks[owner]}" for ip, owner in owners.items()),
        "nodes": frozenset(map(gateway, (own, *others))),
        "owner": frozenset(f"{ip} : {marks[owner]}" for ip, owner in owners.items()),
    }
    kinds = {
        "source": "set source { type ifname . ipv4_addr; }",
        "allowed": "set allowed { type ipv4_addr . mark; }",
        "nodes": "set nodes { type ipv4_addr; }",
        "owner": "map owner { type ipv4_addr : mark; }",
    }
    for level, cgroups in sorted(here.cgroups.items()):
        known = frozenset(f'"{path}" : {marks[owner]}' for path, owner in cgroups.items())
        elements[f"{CGROUPS}{level}"] = known
        kinds[f"{CGROUPS}{level}"] = f"map {CGROUPS}{level} {{ type cgroupsv2 : mark; }}"
    if here.accounts:
        elements["accounts"] = frozenset(f"{uid} : {marks[owner]}" for uid, owner in here.accounts.items())
        kinds["accounts"] = "map accounts { type uid : mark; }"
    chains = (*_chains(subnet, own, names.links, names.vxlan), *_of_node_tasks(here))
    return Rules(names.table, (f"table inet {names.table} {{", *kinds.values(), *chains, "}"), elements)


def _chains(subnet: str, own: str, links: str, vxlan: str) -> list[str]:
    from_tasks, to_tasks = f'iifname "{links}*"', f'oifname "{links}*"'
    return [
        "chain forward {",
        "type filter hook forward priority -5; policy accept;",
        f"{from_tasks} iifname . ip saddr != @source drop",
        f"{from_tasks} ip6 version 6 drop",
        f"{from_tasks} ip daddr != {subnet} ct state != {{ established, related }} drop",
        f'iifname "{vxlan}" oifname != "{links}*" drop',
        f'iifname "{vxlan}" ip saddr {own} drop',
        # Among tasks every packet is examined: a flow outlives its address, which may be another owner's by now.
        f"{to_tasks} ip saddr != {subnet} ct state {{ established, related }} accept",
        f"{to_tasks} ip saddr @nodes accept",
        f"{to_tasks} meta mark set ip saddr map @owner",
        f"{to_tasks} ip daddr . meta mark @allowed accept",
        f"{to_tasks} drop",
        "}",
        "chain output {",
        "type filter hook output priority -5; policy accept;",
        # Whoever sends to this port can forge packets of any address. What passed `from_node` has a mark, which
        # only root can give; the packets of tasks with addresses have no socket here.
        f"udp dport {PORT} meta skuid != 0 meta mark 0 drop",
        f"ip daddr {subnet} ip daddr != @nodes jump from_node",
        "}",
        "chain input {",
        "type filter hook input priority -5; policy accept;",
        f"{from_tasks} iifname . ip saddr != @source drop",
        f"{from_tasks} ct state {{ established, related }} accept",
        f"{from_tasks} icmp type echo-request accept",
        f"{from_tasks} drop",
        f'iifname "{vxlan}" ct state {{ established, related }} accept',
        f'iifname "{vxlan}" ip saddr != @nodes drop',  # tasks of other nodes reach this node as little
        f'iifname "{vxlan}" meta nfproto ipv6 drop',
        "}",
    ]


def _of_node_tasks(here: NodeTasks) -> list[str]:
    """The chain for packets of this node's own processes to addresses of tasks."""
    rules = [
        f"meta mark set socket cgroupv2 level {level} map @{CGROUPS}{level}" for level in sorted(here.cgroups)
    ]
    rules += ["meta mark set meta skuid map @accounts"] if here.accounts else []
    return [
        "chain from_node {",
        f"{_FROM_KERNEL} accept",
        "meta mark set 0",
        *rules,
        "ip daddr . meta mark @allowed accept",
        "drop",
        "}",
    ]
