"""`phalanx why`: the dominant reason, all others, and a fix that would work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer
from msgspec.structs import replace

from phalanx.api.schema.apply import PlanReason
from phalanx.api.schema.cluster import NodeView
from phalanx.api.schema.jobs import DomainSlots, NodeReasons, ReasonView, WhyReply
from phalanx.cli.job import IdArgument
from phalanx.cli.labels import label
from phalanx.cli.members import ENDED
from phalanx.cli.node import told
from phalanx.cli.output import OutputOption, clean, emit, moment
from phalanx.cli.session import session
from phalanx.cli.shape import remembered
from phalanx.core.model.amounts import plural
from phalanx.errors import NotFound
from phalanx.settings import Settings

if TYPE_CHECKING:
    from phalanx.client.client import Client


def why(ctx: typer.Context, id: IdArgument, output: OutputOption = None) -> None:
    """Explain why a job, a workflow or a stage (`WORKFLOW:STAGE`) waits, and what would help.

    Of a node it says whether that takes work.
    """
    here = session(ctx)
    try:
        reply = _fixed_here(here.client().why(id), here.settings)
    except NotFound as error:
        node = _node(here.client(), id, error)
        emit(node, here.output(output), [node.name], lambda _wide: _node_lines(node))
        return
    emit(reply, here.output(output), [reply.dominant.code], lambda wide: map(clean, why_lines(reply, wide)))


def _node(client: Client, name: str, error: NotFound) -> NodeView:
    """The node of this name; if there is none, the error that there is no such job."""
    try:
        return client.node(name)
    except NotFound:
        raise error from None


def _node_lines(node: NodeView) -> Iterable[str]:
    yield told(node)
    yield f"next: `phalanx story {node.name}` says what happened to it, `phalanx node show {node.name}` what it has"


def _fixed_here(reply: WhyReply, settings: Settings) -> WhyReply:
    """A node of `phalanx up` on this machine comes back with `up`; a plain runner would bring other hardware."""
    fix = reply.fix
    if fix is None or settings.client.address is not None or not fix.command.startswith("phalanx runner "):
        return reply
    name = fix.command.rpartition(" --name ")[2]
    if name not in remembered(settings.state_dir).names:
        return reply
    text = f"{name} is a node of `phalanx up`: `phalanx down`, then with the --nodes and --pretend it had"
    return replace(reply, fix=replace(fix, text=text, command="phalanx up"))


def why_lines(reply: WhyReply, wide: bool = False) -> Iterable[str]:
    name = f"{reply.object} ({label(reply)})" if reply.object else label(reply)
    yield f"{name} is {reply.status}: {reply.dominant.text.removeprefix(f'{name}: ')} ({reply.dominant.code})"
    for other in reply.others:
        if not wide and any(repeats(group, other) for group in reply.nodes):
            continue
        at = f", {moment(other.numbers['at'])}" if other.code == "WasEvicted" else ""
        yield f"  also: {other.text} ({other.code}{at})"
    for domain in reply.domains:
        yield f"  {_in_domain(domain, reply.needed or 0)}"
    for group in reply.nodes:
        if wide or group.count > 1 or not repeats(group, reply.dominant):
            yield f"  {_on_nodes(group)}"
    if reply.fix is not None:
        yield f"{'next' if reply.status in ENDED else 'fix'}: {reply.fix.text}"
        if reply.fix.command:
            yield f"  {reply.fix.command}"
    if reply.position is not None:
        yield f"queue position: {reply.position} of {plural(reply.waiting, 'waiting task')}"
    if wide:
        yield f"as of {moment(reply.at)}, epoch {reply.epoch}"


def repeats(group: NodeReasons, reason: ReasonView | PlanReason) -> bool:
    """Whether a line of nodes has what a reason says of one of them."""
    return (group.reason.code, group.reason.text.removeprefix("for example: ").removeprefix("closest: ")) == (
        reason.code,
        reason.text,
    )


def _in_domain(domain: DomainSlots, needed: int) -> str:
    place = f"{domain.layer} {'/'.join(domain.domain)}" if domain.domain else "the cluster"
    return f"{place}: room for {domain.slots} of {needed} on {plural(domain.nodes, 'node')}"


def _on_nodes(group: NodeReasons) -> str:
    shown = ", ".join(group.nodes) + (", …" if group.count > len(group.nodes) else "")
    return f"{plural(group.count, 'node')}: {group.reason.text} ({group.reason.code})" + (
        f" [{shown}]" if shown else ""
    )
