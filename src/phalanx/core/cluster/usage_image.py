"""One job of the history, read only as far as a report needs it: whose it is, when it ended, what it used.

A report looks at every job that is kept; to read all columns of all of them would take ten times as long.
"""

from __future__ import annotations

from typing import Any

from msgspec import Raw, Struct, defstruct, msgpack

from phalanx.core.cluster.image import JobImage
from phalanx.core.model.job import Job
from phalanx.core.model.usage import UsageTotals


class PastUsage(Struct, frozen=True):
    """What a report asks of a job that has ended."""

    job: Job
    ended_at: float | None
    totals: UsageTotals
    number: int


_READ: dict[str, Any] = {
    "job": Job,
    "arrival": int,
    "ended_at": float | None,
    "usage_totals": UsageTotals | None,
}
_Glance: Any = defstruct(
    "_Glance",
    [
        (name, _READ[name], None) if name in _READ else (name, Raw, Raw())
        for name in JobImage.__struct_fields__
    ],
    array_like=True,
)
_decoder: msgpack.Decoder[Any] = msgpack.Decoder(_Glance)


def past_usage(body: bytes) -> PastUsage:
    """A record of the history, which must be that of a job; raises MsgspecError."""
    found = _decoder.decode(body)
    return PastUsage(found.job, found.ended_at, found.usage_totals or UsageTotals(), found.arrival)
