"""`phalanx nodes` and `phalanx node …`: what machines there are, and who holds which device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer

from phalanx.api.schema.cluster import NodeView
from phalanx.api.schema.jobs import EXCLUDED
from phalanx.cli.completion import node_names
from phalanx.cli.output import OutputOption, Table, emit, fields
from phalanx.cli.session import session
from phalanx.cli.text import moment, size, time_of_day

NameArgument = Annotated[str, typer.Argument(metavar="NAME", autocompletion=node_names)]


def nodes(ctx: typer.Context, output: OutputOption = None) -> None:
    """List nodes and what is free on them.

    With -o wide, who holds which device.
    """
    here = session(ctx)
    found = here.client().nodes()
    emit(found, here.output(output), [node.name for node in found], lambda wide: _table(found, wide))


def show(ctx: typer.Context, name: NameArgument, output: OutputOption = None) -> None:
    """Show one node."""
    here = session(ctx)
    node = here.client().node(name)
    emit(node, here.output(output), [node.name], lambda _wide: _lines(node))


def drain(
    ctx: typer.Context,
    name: NameArgument,
    reason: Annotated[str, typer.Option(help="Why; others will see it.")],
    evict: Annotated[
        bool, typer.Option("--evict", help="Move what runs there: stop it with its grace, gangs as a whole.")
    ] = False,
    output: OutputOption = None,
) -> None:
    """Place nothing more on a node.

    What runs there goes on; with --evict it is stopped, each task with its own grace, and waits to be placed elsewhere.
    """
    here = session(ctx)
    node = here.client().drain(name, reason, evict=evict)
    said = [f"{node.name} takes no more work: {reason}"]
    if evict:
        said.append(
            f"{node.task_count} tasks there are being stopped" if node.task_count else "nothing runs there"
        )
    emit(node, here.output(output), [node.name], lambda _wide: said)


def resume(ctx: typer.Context, name: NameArgument, output: OutputOption = None) -> None:
    """Let a node take work again that was drained, or is temporarily excluded after failures."""
    here = session(ctx)
    node = here.client().undrain(name)
    emit(node, here.output(output), [node.name], lambda _wide: [_resumed(node)])


def lose(
    ctx: typer.Context,
    name: NameArgument,
    reason: Annotated[str, typer.Option(help="How it is known that the node is gone; others will see it.")],
    output: OutputOption = None,
) -> None:
    """Say that a silent node is really gone, so that its tasks are placed again.

    It is needed only while the brake is set, because most nodes are silent at once.
    """
    here = session(ctx)
    node = here.client().lose(name, reason)
    emit(node, here.output(output), [node.name], lambda _wide: [f"{node.name} is lost: {reason}"])


def remove(ctx: typer.Context, name: NameArgument, output: OutputOption = None) -> None:
    """Forget a node that is gone and holds nothing. If it comes back, it is a new one."""
    here = session(ctx)
    gone = here.client().remove_node(name)
    emit(gone, here.output(output), [gone.name], lambda _wide: [f"{gone.name} is removed"])


def _resumed(node: NodeView) -> str:
    if node.status == "Online":
        return f"{node.name} takes work again"
    return f"{node.name} may take work again, but is {node.status}{f': {node.note}' if node.note else ''}"


def _note(node: NodeView) -> str:
    """What is unusual about it, and until when."""
    if node.rests_until is None or not node.note.startswith(EXCLUDED):
        return node.note
    return f"{node.note} (until {time_of_day(node.rests_until)})"


def _table(found: list[NodeView], wide: bool) -> Table:
    noted = any(node.note for node in found)
    more = (("NOTE",) if noted else ()) + (("HOLDERS", "LABELS", "SEEN") if wide else ())
    table = Table("NAME", "STATUS", "CORES", "MEMORY", "GPUS", "TASKS", "DRAINED", *more)
    for node in found:
        cells: tuple[str | None, ...] = (_note(node),) if noted else ()
        cells += (_holders(node), _labels(node), moment(node.last_seen_at)) if wide else ()
        table.add(
            node.name,
            node.status,
            f"{node.cores_free}/{node.cores}",
            f"{size(node.memory_free_bytes)}/{size(node.memory_bytes)}",
            _devices(node),
            node.task_count,
            (node.drain_reason or "yes") if node.drained else None,
            *cells,
        )
    return table


def _lines(node: NodeView) -> Iterable[str]:
    yield from fields(
        [
            ("Node", node.name),
            ("Status", node.status),
            ("Note", _note(node) or None),
            ("Drained", (node.drain_reason or "yes") if node.drained else None),
            ("Cores", f"{node.cores_free} of {node.cores} free"),
            ("Memory", f"{size(node.memory_free_bytes)} of {size(node.memory_bytes)} free"),
            (
                "NUMA",
                ", ".join(f"{each.id}: {each.cores_free} of {each.cores} cores free" for each in node.numa),
            ),
            ("GPUs", _devices(node) if node.devices else None),
            ("Labels", _labels(node)),
            ("Tasks", f"{node.task_count}: {' '.join(node.tasks)}" if node.task_count else 0),
            ("Seen", moment(node.last_seen_at)),
            ("Incarnation", node.incarnation),
            ("Lease", f"generation {node.generation}"),
        ]
    )
    for device in node.devices:
        yield f"  GPU {device.index}  {device.kind}  {size(device.memory_bytes)}  {device.task or 'free'}"


def _devices(node: NodeView) -> str:
    free = sum(device.task is None for device in node.devices)
    kinds = ",".join(sorted({device.kind for device in node.devices}))
    return f"{free}/{len(node.devices)} {kinds}" if node.devices else ""


def _holders(node: NodeView) -> str:
    return " ".join(f"{device.index}:{device.task or 'free'}" for device in node.devices)


def _labels(node: NodeView) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(node.labels.items()))
