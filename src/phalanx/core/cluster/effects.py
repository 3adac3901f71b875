"""Orders to the shell, as values. They are carried out only once the events behind them are durable."""

from __future__ import annotations

from msgspec import Struct

from phalanx.core.model.ids import JobId, NodeName
from phalanx.core.model.orders import Order


class Send(Struct, frozen=True, gc=False):
    """Tell a node's runner something. A node that is away hears it when it is back."""

    node: NodeName
    order: Order


class Settle(Struct, frozen=True):
    """A task has ended for good (`position`), or the whole job has (None) and so every task of it."""

    job: JobId
    position: int | None


Effect = Send | Settle
