"""The rules of elastic nodes: who may disable and enable them, and when the cluster does so by itself.

Times are durations in seconds. `core/cluster/decide/scaling.py` follows these rules; who sets them is left to the
settings.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

ElasticMode = Literal["off", "manual", "auto"]


class ElasticRules(Struct, frozen=True):
    """When nodes are disabled and enabled."""

    mode: ElasticMode = "manual"  # off: nobody disables nodes; manual: people do; auto: the cluster does, too
    notifies: bool = False  # whether somebody outside wants to know that a node is needed
    idle_s: float = (
        60.0  # how long a node holds nothing before it is disabled; 0: no node is disabled by itself
    )
    queue_max: int = 0  # with more waiting tasks than this no node is disabled
    queue_threshold: int = 0  # so many waiting tasks enable a node; 0 means 1
    active_min: int = 1  # so many nodes stay enabled, and one at the least
    poll_s: float = 30.0
    cooldown_s: float = 60.0  # how long a node that was disabled or enabled is left alone

    @property
    def is_automatic(self) -> bool:
        return self.mode == "auto"

    @property
    def is_polled(self) -> bool:
        """Whether there is anything to do from time to time."""
        return self.is_automatic or (self.notifies and self.mode != "off")

    @property
    def enables_at(self) -> int:
        """The number of waiting tasks that enables a node."""
        return max(1, self.queue_threshold)

    @property
    def stays(self) -> int:
        """The number of nodes that are never disabled automatically."""
        return max(1, self.active_min)
