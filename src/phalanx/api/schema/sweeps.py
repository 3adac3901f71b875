"""Rows of a sweep on their way to the coordinator, and what is asked to run failed tasks or a whole job again."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

UPLOAD_BYTES_MAX = 64
PIECE_BYTES = 256 * 1024  # of what clients send at once; a request may have a mebibyte


class RowsPiece(Struct, forbid_unknown_fields=True):
    """A piece of the rows of a sweep, in order. A job is submitted with them by naming the upload in `rows`."""

    upload: str  # a name that the client chooses, such as a UUID
    piece: int  # from 0
    columns: list[str]  # the same in every piece
    rows: list[list[str]]  # one text for each column


class RowsTaken(Struct):
    """How far an upload has come. It is forgotten when nothing more of it comes."""

    upload: str
    pieces: int
    rows: int
    expires_in_s: float


class RetryTasksRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Run the failed tasks of an ended job again, as a job of its own that keeps their indexes.

    Of `job.index`, only that task.
    """

    request_id: str | None = None
    cancelled: bool = False  # also those that were cancelled


class ResubmitRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Submit a job once more, with changes: fields of a submission, `env.NAME` and `param.NAME`."""

    set: dict[str, Any] = {}
    request_id: str | None = None
