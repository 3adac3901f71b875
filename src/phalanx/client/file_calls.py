"""Calls about what tasks left behind, and how a file that arrives is verified."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from phalanx.api.schema.files import FilesView
from phalanx.client.calls import Call
from phalanx.client.ids import AnyId, id_of
from phalanx.errors import Unavailable

QUIET_S_MAX = 60.0


def result(id: AnyId) -> Call[Any]:
    return Call(
        method="GET", path=f"/v1/tasks/{quote(id_of(id), safe='')}/result", answer=Any, repeatable=True
    )


def files(id: AnyId, attempt: int | None) -> Call[FilesView]:
    path = f"/v1/tasks/{quote(id_of(id), safe='')}/files"
    return Call(method="GET", path=path, answer=FilesView, query=_query(attempt), repeatable=True)


def file(id: AnyId, path: str, attempt: int | None) -> Call[None]:
    where = f"/v1/tasks/{quote(id_of(id), safe='')}/files/{quote(path, safe='/')}"
    return Call(method="GET", path=where, query=_query(attempt), timeout_s=QUIET_S_MAX)


class ArrivingFile:
    """Counts and digests the bytes of a file that arrives."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._size = int(headers.get("x-phalanx-size", 0))
        self._sha256 = headers.get("x-phalanx-sha256", "")
        self._digest, self._seen = hashlib.sha256(), 0

    def advance(self, piece: bytes) -> None:
        self._digest.update(piece)
        self._seen += len(piece)

    def check(self) -> None:
        """Raise Unavailable unless all has come, as the task wrote it."""
        if self._seen != self._size or self._digest.hexdigest() != self._sha256:
            raise Unavailable(
                f"{self._seen} of {self._size} bytes came, or they are not what the task wrote",
                reason="FileDamaged",
                hint="the coordinator's log says whether its place for files is damaged",
            )


def _query(attempt: int | None) -> dict[str, str]:
    return {} if attempt is None else {"attempt": str(attempt)}
