"""Single facts out of a record of the history, where the whole job is not needed."""

from __future__ import annotations

from msgspec import Raw, Struct, msgpack

from phalanx.core.cluster.environments import HistoryEnvironments
from phalanx.core.cluster.image import JobImage


class _Numbered(Struct, array_like=True):
    """The beginning of a `JobImage`."""

    job: Raw
    arrival: int


def number_of_job(body: bytes) -> int:
    """The number in a record of the history, read without the rest."""
    return msgpack.decode(body, type=_Numbered).arrival


def environments_of(body: bytes) -> HistoryEnvironments:
    """The environments in a record of the history, and where those are that it only names."""
    return msgpack.decode(body, type=JobImage).environments or HistoryEnvironments()
