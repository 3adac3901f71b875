"""The firewall of a node's task networks, as text for nft: made anew and put in place as a whole at every change.

Tasks of one owner reach each other; those of different owners do not. A packet from a task must have the task's own
address. Neither this node nor anything outside the overlay network can be reached from a task's network, and so not the
control plane; answers to connections from there can. Of the processes in a node's own network only tasks reach
addresses, those of their owner (`overlay_owners.py` says how they are recognised); what comes from another node's own
network was examined there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from phalanx.core.model.overlay import gateway
from phalanx.runner.overlay_owners import NodeTasks

NOBODY = NodeTasks({}, {})
PORT = 8473  # of UDP, for VXLAN
# What a node itself says to tasks: answers to their pings, and why a packet of theirs was not passed on.
_FROM_KERNEL = "icmp type { echo-reply, destination-unreachable, time-exceeded, parameter-problem }"


def ruleset(
    table: str,
    subnet: str,
    tasks: Mapping[str, str],
    owners: Mapping[str, str],
    blocks: Iterable[str],
    links: str,
    vxlan: str,
    here: NodeTasks = NOBODY,
) -> str:
    """The table with this name instead of whatever it was.

    `tasks` are the addresses of this node's tasks by their links, whose names begin with `links`; `owners` are those
    of addresses anywhere, as far as they have tasks here; `vxlan` is the link to the other nodes; `here` are the tasks
    in the node's own network. The first of `blocks` is this node's.
    """
    known = list(blocks)
    own = known[0]
    marks = {owner: number for number, owner in enumerate(sorted(set(owners.values())), start=1)}
    from_tasks, to_tasks = f'iifname "{links}*"', f'oifname "{links}*"'
    return "\n".join(
        [
            f"table inet {table} {{}}",
            f"delete table inet {table}",
            f"table inet {table} {{",
            _set("source", "ifname . ipv4_addr", (f'"{link}" . {ip}' for link, ip in sorted(tasks.items()))),
            _set("allowed", "ipv4_addr . mark", (f"{ip} . {marks[owners[ip]]}" for ip in sorted(owners))),
            _set("nodes", "ipv4_addr", sorted(map(gateway, known))),
            _map("owner", "ipv4_addr : mark", (f"{ip} : {marks[owners[ip]]}" for ip in sorted(owners))),
            *_of_node_tasks(here, marks),
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
            "}",
            "",
        ]
    )


def _of_node_tasks(here: NodeTasks, marks: Mapping[str, int]) -> list[str]:
    """The chain for packets of this node's own processes to addresses of tasks."""
    maps, rules = [], []
    for level, cgroups in sorted(here.cgroups.items()):
        known = (f'"{path}" : {marks[owner]}' for path, owner in sorted(cgroups.items()))
        maps.append(_map(f"cgroups{level}", "cgroupsv2 : mark", known))
        rules.append(f"meta mark set socket cgroupv2 level {level} map @cgroups{level}")
    if here.accounts:
        of_accounts = (f"{uid} : {marks[owner]}" for uid, owner in sorted(here.accounts.items()))
        maps.append(_map("accounts", "uid : mark", of_accounts))
        rules.append("meta mark set meta skuid map @accounts")
    return [
        *maps,
        "chain from_node {",
        f"{_FROM_KERNEL} accept",
        "meta mark set 0",
        *rules,
        "ip daddr . meta mark @allowed accept",
        "drop",
        "}",
    ]


def _set(name: str, kind: str, elements: Iterable[str]) -> str:
    return _named("set", name, kind, elements)


def _map(name: str, kind: str, elements: Iterable[str]) -> str:
    return _named("map", name, kind, elements)


def _named(what: str, name: str, kind: str, elements: Iterable[str]) -> str:
    listed = ", ".join(elements)
    inside = f" elements = {{ {listed} }}" if listed else ""
    return f"{what} {name} {{ type {kind};{inside} }}"
