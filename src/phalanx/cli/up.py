"""`phalanx up`: a working cluster on this machine, with one command.

One coordinator and some runners, each a process, under a supervisor that keeps them alive. What the parts do
is theirs; this file decides what there is: folders, tokens, ports, names.
"""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Callable, Mapping
from errno import EADDRINUSE
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from msgspec.structs import replace

from phalanx.cli.child import Child, no_threads
from phalanx.cli.detach import detached
from phalanx.cli.output import note, tell_error
from phalanx.cli.session import SERVING, session
from phalanx.cli.shape import ClusterShape, remember, remembered
from phalanx.cli.state import announced, claimed, endpoint_of, prepare
from phalanx.cli.supervisor import Supervisor, signals_held
from phalanx.clock import SystemClock
from phalanx.core.model.amounts import plural
from phalanx.errors import ConfigError, Conflict, Unauthorized, Unavailable
from phalanx.runner.accounts import account_name
from phalanx.settings import Settings
from phalanx.tokenfile import ensure_token

NODES_MAX = 1000
PORT_HINT = "another program listens there: choose another with --port, or leave --port out for any free one"
TRIES = 3  # a port that was free a moment ago may be taken by then


def up(
    ctx: typer.Context,
    nodes: Annotated[
        int | None,
        typer.Option(min=1, max=NODES_MAX, help="Number of nodes.", show_default="1, or as last time"),
    ] = None,
    pretend: Annotated[
        list[str] | None,
        typer.Option(
            help="Simulated hardware: gpus=8,type=h100,memory=80GiB,cpus=64,labels=rack=r1. Given several times, the"
            " nodes take them in turn."
        ),
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="A label of every node, such as rack=r1; repeatable.")
    ] = None,
    state: Annotated[Path | None, typer.Option(help="State folder.")] = None,
    port: Annotated[
        int | None, typer.Option(help="Port of the REST API.", show_default="7433, or a free one")
    ] = None,
    grpc_port: Annotated[
        int | None, typer.Option(help="Port of the gRPC interface.", show_default="none")
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Run in the background; return once ready.")
    ] = False,
) -> int:
    """Start a cluster on this machine.

    One coordinator, some runners and a token, all in one state folder. Ctrl-C or `phalanx down` stops it. Without
    --nodes, --pretend and --label the nodes are the same as last time.
    """
    settings = session(ctx).settings_of(
        *SERVING,
        state_dir=state,
        coordinator_port=port,
        coordinator_grpc_port=grpc_port,
        runner_labels=";".join(label) if label else None,
    )
    pretends = tuple(pretend or ([settings.runner.pretend] if settings.runner.pretend else []))
    prepare(settings.state_dir)
    shape = ClusterShape(nodes or 1, pretends, settings.runner.labels)
    if nodes is None and shape.is_plain and not (last := remembered(settings.state_dir)).is_plain:
        note(last.told)
        shape = last
        settings = replace(settings, runner=replace(settings.runner, labels=last.labels))
    if not detach:
        _supervise(settings, shape, print)
        return 0
    report = detached(lambda tell: _supervise(settings, shape, tell), settings.state_dir / "log" / "up.log")
    if report.error:
        tell_error(report.error, report.hint)
    else:
        print(report.text)
    return report.exit_code


def _supervise(settings: Settings, shape: ClusterShape, tell: Callable[[str], None]) -> None:
    """Bring it up, tell when it is ready, keep it up, bring it down."""
    with claimed(settings.state_dir) as lock, signals_held():
        for tries_left in reversed(range(TRIES)):
            chosen = _with_ports(settings)
            try:
                _bring_up(chosen, shape, lock, tell)
                return
            except (Unavailable, Unauthorized):  # it did not start, or another cluster answered at its port
                if not tries_left or _with_ports(chosen) == chosen:
                    raise
            note("another process took its port meanwhile: trying others")


def _bring_up(settings: Settings, shape: ClusterShape, lock: int, tell: Callable[[str], None]) -> None:
    """The same on these ports; Unavailable if it does not start."""
    token = ensure_token(settings.coordinator.token_file)
    ensure_token(settings.coordinator.node_token_file)
    members = _members(settings, shape.nodes, list(shape.pretend))
    remember(settings.state_dir, replace(shape, names=tuple(members)))
    supervisor = _supervisor(settings, members, lock)
    try:
        supervisor.start()
        supervisor.await_ready(_readiness(endpoint_of(settings).address, token, set(members)))
        with announced(settings.state_dir, endpoint_of(settings)):
            tell(_welcome(settings, members))
            supervisor.watch()
    finally:
        supervisor.stop()


def _supervisor(settings: Settings, members: dict[str, Settings], lock: int) -> Supervisor:
    """The parts, not yet started. Their code is imported here, once, and frozen so that it stays shared."""
    with no_threads():
        import phalanx.coordinator.main
        import phalanx.runner.main

    gc.collect()
    gc.freeze()
    logs = settings.state_dir / "log"
    coordinator = Child(
        "coordinator", logs / "coordinator.log", partial(phalanx.coordinator.main.run, settings), lock
    )
    runners = [
        Child(
            f"runner {name}",
            logs / f"runner-{name}.log",
            partial(phalanx.runner.main.run, own, drain=True),
            lock,
        )
        for name, own in members.items()
    ]
    return Supervisor(coordinator, runners, SystemClock())


def _members(settings: Settings, nodes: int, pretends: list[str]) -> dict[str, Settings]:
    """The settings of each runner, by name."""
    _check(pretends, settings.runner.labels)
    if not pretends and nodes == 1:
        return {settings.runner.name: _member(settings, settings.runner.name, None)}
    given = pretends or [_share(nodes)]
    return {f"n{at + 1}": _member(settings, f"n{at + 1}", given[at % len(given)]) for at in range(nodes)}


def _check(pretends: list[str], labels: str | None) -> None:
    """Refuse impossible hardware before anything is started."""
    from phalanx.runner.labels import parse_labels
    from phalanx.runner.pretend import parse_pretend

    try:
        parse_labels(labels or "")
        for pretend in pretends:
            parse_pretend(pretend, "n1")
    except ValueError as error:
        raise ConfigError(str(error) if "pretend" in str(error) else f"--label: {error}") from None


def _member(settings: Settings, name: str, pretend: str | None) -> Settings:
    folder = settings.state_dir / "runners" / name
    runner = replace(
        settings.runner,
        name=name,
        state_dir=folder,
        work_dir=folder / "work",
        token_file=settings.coordinator.node_token_file,
        join=(endpoint_of(settings).link,),
        pretend=pretend,
    )
    return replace(settings, runner=runner)


def _share(nodes: int) -> str:
    """Several nodes on one machine: each gets its share, or cores and devices would be counted twice."""
    cpus = max(1, (os.cpu_count() or 1) // nodes)
    ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // nodes >> 20
    return f"cpus={cpus},ram={ram}MiB"


def _readiness(address: str, token: str, names: set[str]) -> Callable[[], bool]:
    from phalanx.client.client import Client

    client = Client(address, token)

    def is_ready() -> bool:
        try:
            client.ready()
            return names <= {node.name for node in client.nodes() if node.status == "Online"}
        except Unavailable:
            return False

    return is_ready


def _with_ports(settings: Settings) -> Settings:
    """The ports of the settings, or free ones where those are taken and were not asked for by number."""
    old = settings.coordinator
    port = _port(old.bind, old.port, "coordinator.port" in settings.given, but_not=0)
    link = _port(old.bind, old.link_port, "coordinator.link_port" in settings.given, but_not=port)
    return replace(settings, coordinator=replace(old, port=port, link_port=link))


def _port(bind: str, wanted: int, is_fixed: bool, but_not: int) -> int:
    with socket.socket(socket.AF_INET6 if ":" in bind else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((bind, wanted))
        except OSError as error:
            if is_fixed:
                text = f"port {wanted} of {bind} cannot be used: {error.strerror}"
                raise Conflict(text, hint=PORT_HINT if error.errno == EADDRINUSE else "") from error
            probe.bind((bind, 0))
        found: int = probe.getsockname()[1]
    return found if found != but_not else _port(bind, 0, is_fixed, but_not)


def _accounts(settings: Settings) -> str:
    if settings.runner.accounts:
        return "Tasks run as the accounts of their users."
    return f"All tasks run as {account_name(os.geteuid())}, whoever submits them."


def _welcome(settings: Settings, members: Mapping[str, Settings]) -> str:
    names = list(members)
    folder = settings.state_dir
    here = f"\n  export PHALANX_STATE_DIR={folder}" if "state_dir" in settings.given else ""
    shown = " ".join(names[:8]) + (" …" if len(names) > 8 else "")
    return (
        f"Phalanx is up at {endpoint_of(settings).address} with {plural(len(names), 'node')}: {shown}\n"
        f"Its state is in {folder}. {_accounts(settings)}{_addresses(settings, members)}\n"
        f"The dashboard is at {endpoint_of(settings).address}/ui/ and `phalanx ui` opens it. Try:{here}\n"
        "  phalanx run -- echo hello\n"
        "  phalanx submit --array 1-10 -- sleep 5\n"
        "  phalanx ps\n"
        "  phalanx nodes\n"
        "`phalanx down` stops it."
    )


def _addresses(settings: Settings, members: Mapping[str, Settings]) -> str:
    """Nodes that share a machine have no network each."""
    if settings.overlay.mode == "off" or all(each.runner.pretend is None for each in members.values()):
        return ""
    return " Overlay addresses are simulated, since its nodes are: nothing can be reached at them."
