"""Where a cluster answers: its address and the token for it, as configured, or of the cluster on this machine, with
the process that runs it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from msgspec import MsgspecError, Struct, json

from phalanx.config import load
from phalanx.errors import ConfigError, Unauthorized, Unavailable
from phalanx.settings import Secret, Settings, TaskAccess
from phalanx.settings_types import LOOPBACK
from phalanx.tokenfile import first_token

VARIABLE_RANK = 1  # of sources: what is weaker comes from files, which are not meant for the inside of a task


class Endpoint(Struct, frozen=True):
    """Where the cluster of `phalanx up` is: endpoint.json of the state folder while it runs."""

    address: str
    link: str
    token_file: str
    pid: int


class ProcessOwner(Struct, frozen=True):
    """A process, identified by pid and start time, because pids are reused."""

    pid: int
    started: int  # clock ticks after boot

    @classmethod
    def of(cls, pid: int) -> ProcessOwner | None:
        """The process that has this pid now."""
        with suppress(OSError, ValueError):
            # The program's name may hold spaces and brackets, so we count from the last bracket on.
            fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
            return cls(pid, int(fields[19])) if fields[0] not in {"Z", "X"} else None
        return None

    @property
    def is_alive(self) -> bool:
        return ProcessOwner.of(self.pid) == self


class ApiConnection(NamedTuple):
    """Addresses of a cluster and the token for it. Any of the addresses may lead to the active coordinator."""

    addresses: tuple[str, ...]
    token: Secret
    token_file: Path | None = None  # where it came from, if it was a file


class Addresses:
    """The addresses of a cluster's coordinators, in the order in which they are tried."""

    def __init__(self, given: Sequence[str], *, vouched: bool = False) -> None:
        """With `vouched`, TLS accepts only servers that have a certificate of our own authority."""
        self.given = tuple(dict.fromkeys(given))
        self.vouched = vouched

    @property
    def is_alone(self) -> bool:
        return len(self.given) == 1

    def may_follow(self, address: str) -> bool:
        """Whether a token may be sent where a standby points: to a given address, or one that TLS authenticates."""
        return address in self.given or (self.vouched and bool(address))

    def others(self, address: str) -> list[str]:
        """All given addresses: those after this one first, then those before, itself last."""
        if address not in self.given:
            return list(self.given)
        after = self.given.index(address) + 1
        return [*self.given[after:], *self.given[:after]]


def connection(settings: Settings | None = None) -> ApiConnection:
    """The named cluster, or the one that runs on this machine, with its token."""
    settings = settings or load()
    client, local = settings.client, endpoint(settings.state_dir)
    is_named = bool(client.address) or (local is not None and "state_dir" in settings.given)
    if settings.task is not None and not is_named:  # inside a task, whatever else runs on the machine
        return _from_within(settings.task, settings)
    addresses = client.address or ((local.address,) if local else ())
    if not addresses:
        raise Unavailable("no cluster is running here", hint="`phalanx up` starts one, --address names one")
    if client.token:
        return ApiConnection(addresses, client.token)
    file = client.token_file or _token_file(settings, addresses, local)
    return ApiConnection(addresses, first_token(file), file)


def _from_within(task: TaskAccess, settings: Settings) -> ApiConnection:
    """The cluster that runs this task: with the task's token, unless an option or a variable names the user's own."""
    client = settings.client
    given = (settings.given.get(key, ()) for key in ("client.token", "client.token_file"))
    if any(each and each[0].rank <= VARIABLE_RANK for each in given):
        if client.token:
            return ApiConnection((task.address,), client.token)
        if client.token_file:
            return ApiConnection((task.address,), first_token(client.token_file), client.token_file)
    return ApiConnection((task.address,), task.token)


def endpoint(state_dir: Path) -> Endpoint | None:
    path = state_dir / "endpoint.json"
    try:
        return json.decode(path.read_bytes(), type=Endpoint) if path.is_file() else None
    except (OSError, MsgspecError) as error:
        raise ConfigError(f"{path} cannot be read: {error}", hint="`phalanx up` writes a new one") from error


def _token_file(settings: Settings, addresses: tuple[str, ...], local: Endpoint | None) -> Path:
    """The token of a cluster on this machine. It is sent to no other."""
    if local and addresses == (local.address,):
        return Path(local.token_file)
    is_here = all(re.match(rf"(?:https?|grpcs?)://{LOOPBACK}(?::|\Z)", each) for each in addresses)
    if is_here and settings.coordinator.token_file.exists():
        return settings.coordinator.token_file
    raise Unauthorized(f"no token for {addresses[0]}", hint="use --token-file or PHALANX_TOKEN_FILE")
