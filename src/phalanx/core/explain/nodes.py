"""Why no node takes a task, as data: what every node says, and the dominant reason.

The same ledgers that grant give the reasons, so an explanation cannot differ from the decision.
"""

from __future__ import annotations

from collections.abc import Container

from msgspec import Struct

from phalanx.core.cluster.repairs import Repairs, waits_for_repair
from phalanx.core.model import reason
from phalanx.core.model.ledger import Ledger
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.resources import Request
from phalanx.core.model.table import NodeTable

NAMES_SHOWN = 5


class Verdict(Struct, frozen=True):
    """What the nodes say about one request. `fits` names nodes that would take it now."""

    dominant: Reason
    others: list[Reason]
    groups: list[tuple[Reason, list[str]]]
    fits: list[str]


def verdict(
    table: NodeTable, request: Request, closed: dict[str, Reason], known: Repairs | None = None
) -> Verdict:
    """Ask every node, and sum up. `closed` holds the nodes that take no work, and why; `known` those to be repaired."""
    groups: dict[tuple[Tier, str], list[tuple[Reason, str]]] = {}
    fits: list[str] = []
    for ledger in _asked(table, request):
        answer = closed.get(ledger.name)
        if (never := ledger.never(request)) is not None:
            answer = waits_for_repair(known or {}, ledger.name, request) or never
        no = answer or ledger.fit(request)
        if isinstance(no, Reason):
            groups.setdefault((no.tier, no.code), []).append((no, ledger.name))
        else:
            fits.append(ledger.name)
    said = [_closest(members, closed) for _, members in sorted(groups.items())]
    dominant = _dominant(table, request, said, fits)
    others = [no for no in said if no.code != dominant.code]
    listed = [
        (_of_all(members, closed), [name for _, name in members]) for _, members in sorted(groups.items())
    ]
    return Verdict(dominant, others, listed, fits)


def _asked(table: NodeTable, request: Request) -> list[Ledger]:
    if request.target is None:
        return table.ledgers
    row = table.rows.get(request.target.host)
    return [] if row is None else [table.ledgers[row]]


def _closest(members: list[tuple[Reason, str]], closed: Container[str]) -> Reason:
    """Of the same no from several nodes, the one that lacks the least, if there is one of a node that takes work."""

    def lack(member: tuple[Reason, str]) -> tuple[bool, float]:
        numbers = member[0].numbers
        return member[1] in closed, float(numbers.get("wanted", 0)) - float(numbers.get("free", 0))

    return min(members, key=lack)[0]


def _of_all(members: list[tuple[Reason, str]], closed: Container[str]) -> Reason:
    """The same no from several nodes: the text and the numbers are those of one of them, which is said."""
    no = _closest(members, closed)
    if len(members) == 1:
        return no
    which = "closest" if "wanted" in no.numbers else "for example"
    return Reason(no.code, no.tier, f"{which}: {no.text}", no.numbers)


def _dominant(table: NodeTable, request: Request, said: list[Reason], fits: list[str]) -> Reason:
    """Never wins only if every node says never; otherwise capacity says it best, then what is held."""
    if not len(table):
        return reason.no_nodes()
    if request.target is not None and request.target.host not in table.rows:
        return reason.target_not_found(request.target.host, sorted(table.names))
    if fits:
        return reason.evaluating()
    for tier in (Tier.CAPACITY, Tier.HELD, Tier.NEVER):
        for no in said:
            if no.tier == tier:
                return no
    return reason.evaluating()
