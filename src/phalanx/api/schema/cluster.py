"""The coordinators of a cluster, in the words of REST."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class CoordinatorView(Struct):
    """Who answered, which role it has, and who leads as far as it knows."""

    name: str
    role: Literal["Active", "Standby", "Stopped"]
    leader: str = ""  # its name; empty while nobody leads
    address: str = ""  # of the leader's REST
    behind_s: float = 0.0  # how long ago a standby last read the log to its end
    trouble: str = ""  # why it cannot read on: what its store says, or does not say
