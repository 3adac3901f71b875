"""Where the parts of a cluster are, how they reach each other, and how they are cut off.

A cut has a direction: what `source` sends to `target` is lost, silently, until it is healed. Two networks do this:
`namespaces.py`, where every part has its own address (root only), and `proxies.py` on loopback for any account.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

RIG = "rig"  # the name of the rig itself, among the names of the parts


class ServiceAddress(NamedTuple):
    """A service of one part: where it listens, and where others reach it."""

    host: str
    port: int
    reached_host: str
    reached_port: int

    @property
    def bind(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def address(self) -> str:
        return f"{self.reached_host}:{self.reached_port}"


class Network(Protocol):
    needs_tls: bool

    def service_address(self, owner: str, service: str, port: int) -> ServiceAddress:
        """The address of a service; `port` is the one it has where ports are not scarce."""
        ...

    def enter(self, owner: str) -> list[str]:
        """The words before a command that make it run where `owner` is."""
        ...

    def settled(self, owner: str, pid: int) -> None:
        """A process of `owner` was started."""
        ...

    def cut(self, source: str, target: str) -> None: ...

    def heal(self, source: str, target: str) -> None: ...

    def close(self) -> None: ...
