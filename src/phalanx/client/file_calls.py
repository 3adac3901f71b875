"""Calls about what tasks left behind, and how a file that arrives is verified."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from phalanx.api.schema.files import FilesView
from phalanx.client.calls import Call
from phalanx.client.ids import AnyId, id_of
from phalanx.errors import Conflict, Unavailable

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
    """Counts and digests the bytes of a file that arrives, over as many connections as it takes."""

    def __init__(self) -> None:
        self._size, self._sha256 = 0, ""
        self._digest, self._seen = hashlib.sha256(), 0
        self._seen_before = self._again = 0  # when this answer began; of it what has not come once more

    def begin(self, headers: Mapping[str, str]) -> None:
        """An answer begins, with the first byte. Raise Conflict if it is of another file than the one that was cut."""
        size, sha256 = int(headers.get("x-phalanx-size", 0)), headers.get("x-phalanx-sha256", "")
        if self._seen and (size, sha256) != (self._size, self._sha256):
            raise Conflict(
                "the connection was cut, and meanwhile another attempt has left another file",
                reason="FileChanged",
                hint="copy it once more, or give --attempt",
            )
        self._size, self._sha256 = size, sha256
        self._seen_before = self._again = self._seen

    def advance(self, piece: bytes) -> bytes:
        """The part of a piece that had not come before."""
        new = piece[self._again :]
        self._again -= len(piece) - len(new)
        self._digest.update(new)
        self._seen += len(new)
        return new

    @property
    def ends_there_again(self) -> bool:
        """Whether an answer was cut where the one before was: then the file is damaged, and not the connection."""
        return 0 < self._seen == self._seen_before and self._again == 0

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
