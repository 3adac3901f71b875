"""`phalanx nodes` and `phalanx node …`: the nodes, and which task holds which device."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from phalanx.api.schema.cluster import DeviceView, NodeView
from phalanx.api.schema.jobs import EXCLUDED
from phalanx.cli.completion import node_names
from phalanx.cli.job import each_of
from phalanx.cli.output import OutputOption, Table, clean, emit, fields, moment, note, size, time_of_day
from phalanx.cli.session import session
from phalanx.core.model.amounts import plural
from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    from phalanx.client.client import Client

NODES_NAMED_MAX = 3


class Toggle(Enum):
    """What `node elastic` does to a node."""

    ON = "on"
    OFF = "off"


NameArgument = Annotated[str, typer.Argument(metavar="NAME", autocompletion=node_names)]
NamesArgument = Annotated[list[str], typer.Argument(metavar="NAME...", autocompletion=node_names)]


def nodes(ctx: typer.Context, output: OutputOption = None) -> None:
    """List nodes and what is free on them.

    With -o wide, which task holds which device, and as which account tasks run.
    """
    here = session(ctx)
    found, form = here.client().nodes(), here.output(output)
    emit(found, form, [node.name for node in found], lambda wide: _table(found, wide))
    if form in ("table", "wide") and (text := _shared_accounts(found)):
        note(text)


def show(ctx: typer.Context, name: NameArgument, output: OutputOption = None) -> None:
    """Show one node."""
    here = session(ctx)
    node = here.client().node(name)
    emit(node, here.output(output), [node.name], lambda _wide: node_lines(node))


def drain(
    ctx: typer.Context,
    names: NamesArgument,
    reason: Annotated[str, typer.Option(help="Reason, shown to other users.", show_default="by you")] = "",
    evict: Annotated[
        bool, typer.Option("--evict", help="Evict running tasks with their grace period; gangs as a whole.")
    ] = False,
    output: OutputOption = None,
) -> int:
    """Drain nodes: place nothing more on them.

    Running tasks continue; with --evict they are stopped, each with its own grace period, and placed elsewhere.
    """
    here = session(ctx)
    client = here.client()
    nodes, code = each_of(lambda name: client.drain(name, reason, evict=evict), names)
    said = [line for node in nodes for line in _drained(node, evict=evict)]
    emit(_one_or_all(nodes, names), here.output(output), [each.name for each in nodes], lambda _wide: said)
    return code


def _drained(node: NodeView, *, evict: bool) -> list[str]:
    """What became of a node that is drained."""
    running = f" ({plural(node.task_count, 'task')} still running there)" if node.task_count else ""
    said = [
        f"{node.name} is {'draining' if running else 'drained'}: {node.drain_reason}{'' if evict else running}"
    ]
    if evict:
        said.append(
            f"{plural(node.task_count, 'task')} there being stopped; a gang is stopped whole, on other nodes too"
            if node.task_count
            else "no task is running there"
        )
    return said


def resume(ctx: typer.Context, names: NamesArgument, output: OutputOption = None) -> int:
    """Make nodes schedulable again that were drained or are temporarily excluded after failures."""
    here = session(ctx)
    nodes, code = each_of(here.client().undrain, names)
    said = [_resumed(node) for node in nodes]
    emit(_one_or_all(nodes, names), here.output(output), [each.name for each in nodes], lambda _wide: said)
    return code


def _one_or_all(nodes: list[NodeView], names: list[str]) -> NodeView | list[NodeView]:
    """One node is shown as one, as before several could be given."""
    return nodes[0] if len(names) == 1 and nodes else nodes


def elastic(
    ctx: typer.Context,
    name: NameArgument,
    enabled: Annotated[
        Toggle, typer.Argument(metavar="on|off", help="on enables the node, off disables it.")
    ],
    reason: Annotated[str, typer.Option(help="Reason, shown to other users.")] = "",
    output: OutputOption = None,
) -> None:
    """Enable or disable an elastic node.

    A disabled node takes no work of any kind; running tasks continue. With automatic scaling it is enabled when tasks
    wait for it. Use `phalanx node drain` to keep work away whatever waits.
    """
    here = session(ctx)
    node = here.client().set_elastic(name, enabled=enabled is Toggle.ON, reason=reason)
    emit(node, here.output(output), [node.name], lambda _wide: [_toggled(node)])


def lose(
    ctx: typer.Context,
    name: NameArgument,
    reason: Annotated[str, typer.Option(help="How it is known that the node is gone; shown to other users.")],
    output: OutputOption = None,
) -> None:
    """Mark an unreachable node as lost, so that its tasks are placed again.

    Needed only while most nodes are unreachable at once, when no node is declared lost automatically.
    """
    here = session(ctx)
    node = here.client().lose(name, reason)
    emit(node, here.output(output), [node.name], lambda _wide: [f"{node.name} is lost: {reason}"])


def remove(
    ctx: typer.Context,
    name: NameArgument,
    revoke: Annotated[
        bool, typer.Option("--revoke", help="Revoke its credential as well: it cannot join again with it.")
    ] = False,
    output: OutputOption = None,
) -> None:
    """Remove a node that is offline and runs nothing. If it comes back, it joins as a new node."""
    here = session(ctx)
    client = here.client()
    if revoke:
        client.tokens()  # one who may not list them is refused before anything is changed
    gone = client.remove_node(name)
    emit(gone, here.output(output), [gone.name], lambda _wide: [f"{gone.name} removed"])
    for id in _valid_tokens(client, gone.name):
        if revoke:
            client.revoke_token(id)
            note(f"its credential {id} is revoked: it cannot join again with it")
        else:
            note(
                f"its credential is still valid, with which it may join again: phalanx token revoke {id}"
                " (`node remove --revoke` does both)"
            )


def _valid_tokens(client: Client, name: str) -> list[str]:
    """The credentials of a node with which it can join; none for one who may not list them."""
    try:
        found = client.tokens()
    except PhalanxError:
        return []
    return [
        each.id for each in found if each.is_valid and each.kind == "node" and name in (each.name, each.node)
    ]


def _resumed(node: NodeView) -> str:
    if node.status == "Online":
        return f"{node.name} is schedulable again"
    return f"{node.name} was resumed, but is {node.status}{f': {node.note}' if node.note else ''}"


def _toggled(node: NodeView) -> str:
    if node.elastic_disabled:
        running = f"; {plural(node.task_count, 'task')} there still running" if node.task_count else ""
        return f"{node.name} is disabled {node.disabled_reason}{running}"
    if node.status == "Online" and not node.drained:
        return f"{node.name} is enabled"
    why = f"drained: {node.drain_reason}" if node.drained else f"{node.status}"
    return f"{node.name} is enabled, but {why}"


def _note(node: NodeView) -> str:
    """Its note, and until when it applies."""
    if node.excluded_until is None or not node.note.startswith(EXCLUDED):
        return node.note
    return f"{node.note} (until {time_of_day(node.excluded_until)})"


def _standing(node: NodeView) -> str:
    """Its status in one word, finer than the API's: whether a node that is online takes work."""
    if node.status != "Online":
        return node.status
    if node.excluded_until is not None and node.note.startswith(EXCLUDED):
        return "Excluded"
    if not node.drained:
        return "Online"
    return "Draining" if node.task_count else "Drained"


def told(node: NodeView) -> str:
    """Whether a node takes work, and if not, why, in one line."""
    standing, why = _standing(node), node.drain_reason or _note(node)
    if standing == "Offline" and node.last_seen_at is not None:
        why = f"last heard from at {moment(node.last_seen_at)}"
    takes = "takes work" if standing == "Online" and not node.elastic_disabled else "takes no new work"
    return f"{node.name} is a node: {standing}, it {takes}{f' ({why})' if why else ''}"


def _table(found: list[NodeView], wide: bool) -> Table:
    noted = any(node.note for node in found)
    weak = wide or any(node.isolation is not None and node.isolation.lacking for node in found)
    more = (("NOTE",) if noted else ()) + (("ISOLATION",) if weak else ())
    more += ("ACCOUNTS", "HOLDERS", "LABELS", "SEEN") if wide else ()
    table = Table(
        *("NAME", "STATUS", "FREE/CORES", "FREE/MEMORY", "FREE/GPUS", "TASKS", "DRAINED", *more),
        narrows={"NOTE": 14, "ISOLATION": 12, "DRAINED": 12, "NAME": 10, "FREE/GPUS": 10},
        spare=("ISOLATION", "TASKS"),
    )
    for node in found:
        cells: tuple[str | None, ...] = (_note(node),) if noted else ()
        cells += (_lacking(node),) if weak else ()
        cells += (_account(node), _holders(node), _labels(node), moment(node.last_seen_at)) if wide else ()
        table.add(
            node.name,
            _standing(node),
            f"{node.cores_free}/{node.cores}",
            _memory(node),
            _devices(node),
            node.task_count,
            (node.drain_reason or "yes") if node.drained else None,
            *cells,
        )
    return table


def node_lines(node: NodeView) -> Iterable[str]:
    yield from fields(
        [
            ("Node", node.name),
            ("Status", _standing(node)),
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
            ("Enforces", _held(node)),
            ("Does not enforce", ", ".join(node.isolation.lacking) if node.isolation is not None else None),
            ("Because", node.isolation.note if node.isolation is not None else None),
            ("Accounts", _accounts(node)),
            ("Containers", node.containers or None),
            ("Cost", None if node.cost_per_hour is None else f"{node.cost_per_hour:g} an hour"),
            ("Tasks at a time", node.slots or None),
            ("Tasks", f"{node.task_count}: {' '.join(node.numbers or node.tasks)}" if node.task_count else 0),
            ("Seen", moment(node.last_seen_at)),
            ("Incarnation", node.incarnation),
            ("Lease", f"generation {node.generation}"),
        ]
    )
    for device in node.devices:
        holder = device.number or device.task or ("" if device.out_of_service else "free")
        if device.out_of_service:
            holder = f"{holder}  out of service: {clean(device.out_of_service)}".strip()
        kind = f"{device.kind} ({device.name})" if device.name else device.kind
        yield f"  GPU {device.index}  {clean(kind)}  {size(device.memory_bytes)}  {holder}"


def _memory(node: NodeView) -> str:
    """Free and in all, the unit once if it is the same: 12/23.5 GiB."""
    free, whole = size(node.memory_free_bytes), size(node.memory_bytes)
    unit = whole[whole.rfind(" ") :]
    return f"{free.removesuffix(unit)}/{whole}" if " " in whole else f"{free}/{whole}"


def _devices(node: NodeView) -> str:
    free = sum(device.task is None and not device.out_of_service for device in node.devices)
    kinds = ",".join(sorted({device.kind for device in node.devices}))
    return f"{free}/{len(node.devices)} {kinds}" if node.devices else ""


def _holders(node: NodeView) -> str:
    return " ".join(f"{device.index}:{_holder(device)}" for device in node.devices)


def _holder(device: DeviceView) -> str:
    return device.number or device.task or ("out" if device.out_of_service else "free")


def _held(node: NodeView) -> str | None:
    """What the node holds tasks to, and by what."""
    has = node.isolation
    if has is None:
        return None
    named = {"CPUs": has.cpus, "CPU time": has.cpu_time, "memory": has.memory, "processes": has.processes}
    named |= {"devices": "" if has.devices == "none" else has.devices, "scratch folders": has.scratch}
    named |= {"overlay addresses of others": has.network}
    return ", ".join(f"{name} ({word})" for name, word in named.items() if word) or "nothing"


def _accounts(node: NodeView) -> str | None:
    """As whom tasks run there, in a sentence."""
    has = node.accounts
    if has is None:
        return None
    if has.mapped:
        return f"tasks run as the accounts of their users{', root among them' if has.root else ', never as root'}"
    return f"all tasks run as {has.shared}, whoever submits them"


def _account(node: NodeView) -> str:
    """The same for a table."""
    has = node.accounts
    return "" if has is None else "of users" if has.mapped else f"{has.shared} for all"


def _shared_accounts(found: list[NodeView]) -> str:
    """That tasks of several users share an account, and on which nodes; empty where they do not."""
    shared = [node for node in found if node.accounts is not None and not node.accounts.mapped]
    if not shared:
        return ""
    names = ", ".join(node.name for node in shared[:NODES_NAMED_MAX])
    more = f" and {len(shared) - NODES_NAMED_MAX} more" if len(shared) > NODES_NAMED_MAX else ""
    every = ", ".join(sorted({node.accounts.shared for node in shared if node.accounts is not None}))
    return f"Tasks of all users run as {every} on {names}{more} (no runner.accounts)"


def _lacking(node: NodeView) -> str:
    """In short, for a table."""
    if node.isolation is None:
        return ""
    return f"without {', '.join(node.isolation.lacking)}" if node.isolation.lacking else "full"


def _labels(node: NodeView) -> str:
    return ",".join(f"{name}={value}" for name, value in sorted(node.labels.items()))
