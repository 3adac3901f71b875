"""Why a task waits, as data: what every node says, the dominant reason, and the nearest change that would help.

The same ledgers that grant give the reasons, so an explanation cannot differ from the decision. A suggested
change is tried on the columns before it is offered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct, structs

from phalanx.core.model import reason
from phalanx.core.model.ledger import Ledger
from phalanx.core.model.quantity import format_bytes
from phalanx.core.model.reason import Reason, Tier
from phalanx.core.model.resources import Grant, Request
from phalanx.core.model.table import NodeTable

NAMES_SHOWN = 5


class Change(Struct, frozen=True):
    """What to ask for instead, or what to do: a sentence, the fields that change, a command line."""

    text: str
    fields: dict[str, object] = {}
    command: str = ""


class Holder(Struct, frozen=True):
    """Who holds a grant on a node."""

    task: str
    node: str
    grant: Grant


class Verdict(Struct, frozen=True):
    """What the nodes say about one request. `fits` names nodes that would take it now."""

    dominant: Reason
    others: list[Reason]
    groups: list[tuple[Reason, list[str]]]
    fits: list[str]


def verdict(table: NodeTable, request: Request, closed: dict[str, Reason]) -> Verdict:
    """Ask every node, and sum up. `closed` holds the nodes that take no work, and why."""
    groups: dict[tuple[Tier, str], list[tuple[Reason, str]]] = {}
    fits: list[str] = []
    for ledger in _asked(table, request):
        answer = closed.get(ledger.name) if ledger.never(request) is None else ledger.never(request)
        no = answer or ledger.fit(request)
        if isinstance(no, Reason):
            groups.setdefault((no.tier, no.code), []).append((no, ledger.name))
        else:
            fits.append(ledger.name)
    said = [(_closest(members), [name for _, name in members]) for _, members in sorted(groups.items())]
    dominant = _dominant(table, request, said, fits)
    others = [no for no, _ in said if no.code != dominant.code]
    return Verdict(dominant, others, said, fits)


def nearest_change(
    table: NodeTable, request: Request, closed: dict[str, Reason], ever: bool
) -> Change | None:
    """The smallest change of the request that would fit: on some empty node (`ever`), or right now."""

    def fits(changed: Request) -> bool:
        if ever:
            return table.could_ever(changed)
        nodes = _asked(table, changed)
        return any(isinstance(node.fit(changed), Grant) for node in nodes if node.name not in closed)

    for text, fields, changed in _smaller(table, request, ever, closed):
        if fits(changed):
            when = "would fit" if ever else "would start now"
            return Change(f"it {when} {text}", fields)
    return None


def nearest_end(
    table: NodeTable, request: Request, closed: dict[str, Reason], holders: list[Holder]
) -> Change | None:
    """The task whose end alone would make room."""
    for holder in holders:
        if holder.node in closed or (request.target and request.target.host != holder.node):
            continue
        ledger = table.ledger(holder.node)
        ledger.give_back(holder.grant)
        try:
            enough = isinstance(ledger.fit(request), Grant)
        finally:
            ledger.retake(holder.grant)
        if enough:
            return Change(
                f"it starts when {holder.task} on {holder.node} ends", {}, f"phalanx cancel {holder.task}"
            )
    return None


def nearest_request(table: NodeTable, request: Request) -> str:
    """The nearest fix for a request that can never fit, as a sentence, or nothing."""
    change = nearest_change(table, request, {}, ever=True)
    return change.text if change else ""


def _asked(table: NodeTable, request: Request) -> list[Ledger]:
    if request.target is None:
        return table.ledgers
    row = table.rows.get(request.target.host)
    return [] if row is None else [table.ledgers[row]]


def _closest(members: list[tuple[Reason, str]]) -> Reason:
    """Of the same no from several nodes, the one that lacks the least."""

    def lack(member: tuple[Reason, str]) -> float:
        numbers = member[0].numbers
        return float(numbers.get("wanted", 0)) - float(numbers.get("free", 0))

    return min(members, key=lack)[0]


def _dominant(
    table: NodeTable, request: Request, said: list[tuple[Reason, list[str]]], fits: list[str]
) -> Reason:
    """Never wins only if every node says never; otherwise capacity says it best, then what is held."""
    if not len(table):
        return reason.no_nodes()
    if request.target is not None and request.target.host not in table.rows:
        return reason.target_not_found(request.target.host, sorted(table.names))
    if fits:
        return reason.evaluating()
    for tier in (Tier.CAPACITY, Tier.HELD, Tier.NEVER):
        for no, _ in said:
            if no.tier == tier:
                return no
    return reason.evaluating()


def _smaller(
    table: NodeTable, request: Request, ever: bool, closed: dict[str, Reason]
) -> Iterator[tuple[str, dict[str, object], Request]]:
    """Requests that ask for a little less, one field at a time, the smallest loss first."""
    nodes = [node for node in table.ledgers if ever or node.name not in closed]
    replace = structs.replace
    for gpus in _values(nodes, lambda node: len(_devices(node, request, ever)), request.gpus):
        if not (request.target and request.target.devices):
            yield f"with {gpus} GPUs instead of {request.gpus}", {"gpus": gpus}, replace(request, gpus=gpus)
    cores_of: Callable[[Ledger], int] = lambda node: node.capacity.cores if ever else node.cores_free  # noqa: E731
    for cores in _values(nodes, cores_of, request.cores):
        yield (
            f"with {cores} cores instead of {request.cores}",
            {"cores": cores},
            replace(request, cores=cores),
        )
    memory_of: Callable[[Ledger], int] = (  # noqa: E731
        lambda node: node.capacity.memory_bytes if ever else node.memory_free
    )
    for memory in _values(nodes, memory_of, request.memory_bytes):
        size = format_bytes(memory)
        yield f"with {size} of memory", {"memory": size}, replace(request, memory_bytes=memory)
    if request.gpu_memory_bytes:
        yield "with any GPU memory", {"gpu_memory": 0}, replace(request, gpu_memory_bytes=0)
    if request.gpu_type:
        yield "with any GPU type", {"gpu_type": None}, replace(request, gpu_type=None)
    if request.target is not None:
        anywhere = replace(request, target=None)
        fields: dict[str, object] = {"targets": [], "gpus": request.gpus}
        yield "on another node, without a target", fields, anywhere


def _values(nodes: list[Ledger], value: Callable[[Ledger], int], asked: int) -> list[int]:
    """What nodes could give instead of what was asked, the most first."""
    return sorted({offer for node in nodes if 0 < (offer := value(node)) < asked}, reverse=True)[:16]


def _devices(node: Ledger, request: Request, ever: bool) -> list[int]:
    return [d.index for d in node.matching(request) if ever or d.index in node.devices_free]
