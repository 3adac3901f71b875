"""Why no node takes a task, as data: what every node says, and the dominant reason.

The same ledgers that grant give the reasons, so an explanation cannot differ from the decision.
"""

from __future__ import annotations

from msgspec import Struct

from phalanx.core.cluster.repairs import Repairs, waits_for_repair
from phalanx.core.model import reason
from phalanx.core.model.ledger import Ledger
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.resources import Request
from phalanx.core.model.table import NodeTable

NAMES_SHOWN = 5
AWAY = ("NodeOffline", "NodeUnreachable")  # whoever repairs or opens a node begins with one that is there


class _Answer(Struct, frozen=True):
    """What one node says, and how far it is from taking the task: the least is the closest."""

    no: Reason
    name: str
    distance: tuple[bool, float]


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
    groups: dict[tuple[Tier, str], list[_Answer]] = {}
    fits: list[str] = []
    for ledger in _asked(table, request):
        answer = closed.get(ledger.name)
        if (never := ledger.never(request)) is not None:
            answer = waits_for_repair(known or {}, ledger.name, request) or never
        no = answer or ledger.fit(request)
        if isinstance(no, Reason):
            answered = _Answer(no, ledger.name, _distance(no, ledger, request, ledger.name in closed))
            groups.setdefault((no.tier, no.code), []).append(answered)
        else:
            fits.append(ledger.name)
    members_of = [members for _, members in sorted(groups.items())]
    said = [_closest(members) for members in members_of]
    dominant = _dominant(table, request, said, fits)
    others = [each.no for each in said if each.no.code != dominant.code]
    listed = [(_of_all(members), [each.name for each in members]) for members in members_of]
    return Verdict(dominant, others, listed, fits)


def _asked(table: NodeTable, request: Request) -> list[Ledger]:
    if request.target is None:
        return table.ledgers
    row = table.rows.get(request.target.host)
    return [] if row is None else [table.ledgers[row]]


def _distance(no: Reason, ledger: Ledger, request: Request, is_closed: bool) -> tuple[bool, float]:
    """A node that takes work is closer than one that does not, and then the one that has the larger part of what is
    wanted. Of nodes that would only have to be opened, those are closer that have room.
    """
    if no.tier == Tier.HELD:
        has_room = no.code == "DevicesFailed" or not isinstance(ledger.fit(request), Reason)
        return not has_room, 0.0
    has = float(no.numbers.get("total" if no.tier == Tier.NEVER else "free", 0))
    return is_closed, float(no.numbers.get("wanted", 0)) / max(has, 0.5)


def _closest(members: list[_Answer]) -> _Answer:
    return min(members, key=lambda each: each.distance)


def _of_all(members: list[_Answer]) -> Reason:
    """The same no from several nodes: the text and the numbers are those of one of them, which is said."""
    no = _closest(members).no
    if len(members) == 1:
        return no
    which = "closest" if "wanted" in no.numbers else "for example"
    return Reason(no.code, no.tier, f"{which}: {no.text}", no.numbers)


def _dominant(table: NodeTable, request: Request, said: list[_Answer], fits: list[str]) -> Reason:
    """Never wins only if every node says never; otherwise capacity says it best, then what is held."""
    if not len(table):
        return reason.no_nodes()
    if request.target is not None and request.target.host not in table.rows:
        return reason.target_not_found(request.target.host, sorted(table.names))
    if fits:
        return reason.evaluating()
    for tier in (Tier.CAPACITY, Tier.HELD, Tier.NEVER):
        of_tier = [each for each in said if each.no.tier == tier]
        if tier == Tier.HELD:
            of_tier.sort(key=lambda each: (each.distance, each.no.code in AWAY))
        if of_tier:
            return of_tier[0].no
    return reason.evaluating()
