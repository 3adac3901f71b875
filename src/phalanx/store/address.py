"""Where a store is, read from its address, and which credentials to use there.

An address names no user and no password: those come from settings, the password from a file that only its owner may
read. `open.py` opens the store.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from phalanx.errors import ConfigError
from phalanx.settings import CoordinatorSettings, Secret
from phalanx.tokenfile import read_token

Kind = Literal["sqlite", "memory", "etcd", "redis"]
EXPECTED = "expected sqlite:PATH, etcd://h1:2379,h2:2379/prefix, redis://host:6379/prefix or memory:"
HOSTS_MAX = 16
_PORTS = {"etcd": 2379, "redis": 6379}
_HOST = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,253}|\[[0-9A-Fa-f:.]{2,45}\])(?::([1-9][0-9]{0,4}))?")
_PREFIX = re.compile(r"[A-Za-z0-9._/-]{1,128}")
_REMOTE = re.compile(r"(etcd|redis)(s?)://([^/]+)(?:/(.*))?")


class StoreAddress(Struct, frozen=True):
    """One store: a file, or a prefix of the keys that some servers keep together."""

    kind: Kind
    path: Path | None = None  # sqlite only
    hosts: tuple[str, ...] = ()  # host:port
    prefix: str = "phalanx"  # before all keys, so that several clusters may share servers
    tls: bool = False

    def __str__(self) -> str:
        if self.kind in ("memory", "sqlite"):
            return f"{self.kind}:{self.path or ''}"
        return f"{self.kind}{'s' if self.tls else ''}://{','.join(self.hosts)}/{self.prefix}"

    def settled(self) -> StoreAddress:
        """The same place with a full path, so that it can be compared."""
        return self if self.path is None else replace(self, path=self.path.resolve())

    def is_same(self, other: StoreAddress) -> bool:
        """Whether both name one store. Their lists of servers may differ, because members join and leave."""
        if self.path is not None and other.path is not None:
            return self.path.resolve() == other.path.resolve()
        return self._shares_a_server(other) and self.prefix == other.prefix

    def is_beside(self, other: StoreAddress) -> bool:
        """Whether it is another cluster's prefix on the same servers."""
        return self._shares_a_server(other) and self.prefix != other.prefix

    def _shares_a_server(self, other: StoreAddress) -> bool:
        return self.kind == other.kind and not set(self.hosts).isdisjoint(other.hosts)


class StoreAccess(Struct, frozen=True):
    """The credentials for a store's servers, and the CA that verifies theirs."""

    user: str | None = None
    password: Secret | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None


def read_address(address: str, state_dir: Path) -> StoreAddress:
    """The place that an address names; `sqlite:` alone is in the state folder."""
    if address == "memory:":
        return StoreAddress("memory")
    if address.startswith("sqlite:"):
        path = address.removeprefix("sqlite:")
        return StoreAddress("sqlite", state_dir / "phalanx.db" if not path else Path(path).expanduser())
    if "@" in address:
        raise ConfigError(
            "a store's address holds no user and no password",
            hint="use coordinator.store_user and coordinator.store_password_file",
        )
    if not (match := _REMOTE.fullmatch(address)):
        raise ConfigError(f"store {address[:200]!r}: {EXPECTED}")
    kind, tls, hosts, prefix = match.groups()
    return StoreAddress(
        "etcd" if kind == "etcd" else "redis",
        hosts=_read_hosts(kind, hosts, address),
        prefix=_read_prefix(prefix, address),
        tls=bool(tls),
    )


def read_access(section: CoordinatorSettings) -> StoreAccess:
    """The credentials from the settings."""
    password = section.store_password_file
    return StoreAccess(
        section.store_user,
        None if password is None else read_token(password),
        section.store_ca_file,
        section.store_cert_file,
        section.store_key_file,
    )


def _read_hosts(kind: str, text: str, address: str) -> tuple[str, ...]:
    hosts = text.split(",")
    if len(hosts) > (most := HOSTS_MAX if kind == "etcd" else 1):
        raise ConfigError(f"store {address[:200]!r}: {len(hosts)} servers, expected at most {most}")
    found = []
    for each in hosts:
        match = _HOST.fullmatch(each)
        if match is None or int(match[2] or 1) > 65535:
            raise ConfigError(f"store {address[:200]!r}: {each[:80]!r} is not a server, expected host:port")
        found.append(f"{match[1]}:{match[2] or _PORTS[kind]}")
    return tuple(found)


def _read_prefix(text: str | None, address: str) -> str:
    prefix = (text or "").strip("/") or "phalanx"
    if not _PREFIX.fullmatch(prefix):
        raise ConfigError(
            f"store {address[:200]!r}: prefix {prefix[:140]!r}, expected up to 128 of A-Z a-z 0-9 . _ / -"
        )
    return prefix
