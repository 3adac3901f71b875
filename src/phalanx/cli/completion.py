"""Shell completion: its scripts, and the ids and names it offers.

A completion must never be in the way: it asks the cluster with a short time limit, and when that fails it
offers nothing and says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from phalanx.cli.labels import label
from phalanx.cli.output import clean
from phalanx.cli.session import connect, flags_before
from phalanx.config import load
from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    from phalanx.client.client import Client

Offer = tuple[str, str]
TIMEOUT_S = 1.0
OFFERED_MAX = 50


def completion(
    ctx: typer.Context,
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="Name of the shell.")],
) -> None:
    """Print a shell's completion script.

    Use it with: eval "$(phalanx completion bash)"
    """
    from typer.completion import shell_complete

    shell_complete(ctx.find_root().command, {}, "phalanx", "_PHALANX_COMPLETE", f"source_{shell}")


def job_ids(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """The newest jobs, each with its name and status."""
    return _offered(ctx, incomplete, _jobs)


def node_names(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """All nodes, each with its status."""
    return _offered(ctx, incomplete, _nodes)


def _jobs(client: Client) -> list[Offer]:
    page = client.jobs(limit=OFFERED_MAX)
    return [(label(job), f"{job.status} {job.name or ' '.join(job.command)}") for job in page.items]


def _nodes(client: Client) -> list[Offer]:
    return [(node.name, node.status) for node in client.nodes()]


def _offered(ctx: typer.Context, incomplete: str, ask: Callable[[Client], list[Offer]]) -> list[Offer]:
    given = ctx.find_root().params
    flags = flags_before(
        given.get("address"), given.get("token_file"), given.get("ca_file"), given.get("state")
    )
    offers: list[Offer] = []
    asking = Thread(target=_ask, args=(flags, ask, offers), daemon=True)
    asking.start()
    asking.join(TIMEOUT_S)
    return [(name, clean(text)[:60]) for name, text in offers if name.startswith(incomplete)]


def _ask(flags: dict[str, object], ask: Callable[[Client], list[Offer]], offers: list[Offer]) -> None:
    with suppress(PhalanxError, OSError):
        offers += ask(connect(load(flags)))
