"""Session: the settings and common options of one command, and the way to its cluster.

Made by the root command from the flags that stand before the verb. Which settings there are is
`phalanx.config`'s business, how to talk to a coordinator is `phalanx.client.client`'s; it is imported late,
because a command that asks nobody should not wait for it.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phalanx.cli.output import note
from phalanx.clock import Deadline
from phalanx.config import load
from phalanx.core.model.amounts import parse_cores, parse_memory, parse_seconds
from phalanx.core.model.resources import Cores
from phalanx.endpoint import ProcessOwner, endpoint
from phalanx.errors import ConfigError, PhalanxError, Unavailable
from phalanx.settings import TRUST_HINT, Output, Settings

if TYPE_CHECKING:
    from phalanx.client.async_client import AsyncClient
    from phalanx.client.client import Client

TimeoutOption = Annotated[str | None, typer.Option(help="Stop waiting after this long and exit with 124.")]
ASYNC_PATIENCE_S = 5.0
SERVING = ("coordinator", "scheduler", "runner", "state_dir")  # what a daemon goes by
STORED = ("coordinator", "state_dir")  # what says where the state is kept


class CliSession:
    """What the flags before the verb said. Settings are read when they are first needed."""

    def __init__(self, flags: dict[str, object] | None = None) -> None:
        self._flags = flags or {}
        self._has_warned = False

    @cached_property
    def settings(self) -> Settings:
        return self._warned(load(self._flags))

    def settings_of(self, *sections: str, **flags: object) -> Settings:
        """The settings with this verb's flags on top; `coordinator_port` stands for coordinator.port.

        For a verb that serves, stops or changes something: what a file that is not trusted says of `sections` is
        refused and not passed over, because without it the verb would do the same to another store, say, or folder.
        """
        found = load(self._flags | {_key(name): value for name, value in flags.items() if value is not None})
        if found.untrusted and any(key.partition(".")[0] in sections for key in found.untrusted.keys):
            raise ConfigError(str(found.untrusted), hint=TRUST_HINT)
        return self._warned(found)

    def _warned(self, found: Settings) -> Settings:
        """Warn once, on standard error, about what is ignored."""
        if found.untrusted and not self._has_warned:
            note(f"warning: {found.untrusted}; ignored until `phalanx config trust`")
            self._has_warned = True
        return found

    def words_before(self) -> list[str]:
        """The flags before the verb, for a process that is to mean the same cluster."""
        found: list[str] = []
        for key, value in self._flags.items():
            if value is not None:
                name = "state" if key == "state_dir" else key.rpartition(".")[2].replace("_", "-")
                found += [f"--{name}", str(value.absolute() if isinstance(value, Path) else value)]
        return found

    def output(self, chosen: Output | None) -> Output:
        """The format asked for, or the one of the settings."""
        return chosen or self.settings.output

    def client(self) -> Client:
        """A new connection to the cluster."""
        return connect(self.settings)


def connect(settings: Settings, patience_s: float | None = None) -> Client:
    """A client for the cluster that the settings name; how long it tries again may be said."""
    from phalanx.client.access import reach_by, transport
    from phalanx.client.client import Client
    from phalanx.client.leader import PATIENCE_S

    if settings.client.address is None:
        _refuse_dead(settings)
    found = reach_by(settings)
    notices = _Notices()
    exchange = transport(
        found, PATIENCE_S if patience_s is None else patience_s, notices.stale, notices.searching
    )
    return Client(token=found.token, token_file=found.token_file, exchange=exchange)


def async_connect(settings: Settings, patience_s: float = ASYNC_PATIENCE_S) -> AsyncClient:
    """The same for asyncio. It gives up soon: who shows something live says so, and asks again."""
    from phalanx.client.access import reach_by
    from phalanx.client.async_client import AsyncClient, async_transport

    if settings.client.address is None:
        _refuse_dead(settings)
    found = reach_by(settings)
    return AsyncClient(
        token=found.token, token_file=found.token_file, exchange=async_transport(found, patience_s)
    )


class _Notices:
    """Says once each, beside what is shown, that it is old, and why nothing is shown yet."""

    def __init__(self) -> None:
        self._is_told = self._searches = False

    def stale(self, seconds: str) -> None:
        if not self._is_told:
            note(f"warning: no active coordinator; this answer of a standby is {seconds} s old")
        self._is_told = True

    def searching(self, error: PhalanxError) -> None:
        if not self._searches:
            note(f"waiting for an active coordinator: {error.detail}")
        self._searches = True


def _refuse_dead(settings: Settings) -> None:
    """A cluster that was killed leaves its address behind, and another program may listen there now."""
    local = endpoint(settings.state_dir)
    if local is not None and ProcessOwner.of(local.pid) is None:
        raise Unavailable(
            f"the cluster in {settings.state_dir} was killed",
            hint="`phalanx up` starts it again where it was",
        )


def session(ctx: typer.Context) -> CliSession:
    """The session of a running command."""
    found = ctx.find_object(CliSession)
    return found if found is not None else CliSession()


def flags_before(
    address: str | None, token_file: Path | None, ca_file: Path | None, state: Path | None
) -> dict[str, object]:
    """The root's own options, by key."""
    return {
        "client.address": address,
        "client.token_file": token_file,
        "client.ca_file": ca_file,
        "state_dir": state,
    }


def tls_files_in(section: str, folder: Path | None) -> dict[str, object]:
    """The flags that a folder made by `phalanx ca issue` stands for."""
    names = {"ca_file": "ca.crt", "cert_file": "tls.crt", "key_file": "tls.key"}
    return {} if folder is None else {f"{section}_tls_{key}": folder / file for key, file in names.items()}


def _key(name: str) -> str:
    section, _, rest = name.partition("_")
    return f"{section}.{rest}" if section in {"coordinator", "runner", "client"} else name


def read_cores(text: str) -> Cores:
    """An option's number of cores."""
    try:
        return parse_cores(str(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def read_memory(text: str) -> str:
    """An option's memory. A small plain number is refused: whoever knows Slurm means MiB, and would get bytes."""
    try:
        parse_memory(str(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return str(text)


def deadline(timeout: str | None) -> Deadline:
    """Read a `--timeout`."""
    try:
        return Deadline(None if timeout is None else parse_seconds(timeout))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--timeout") from error
