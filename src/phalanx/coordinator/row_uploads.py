"""Rows of sweeps that are coming in pieces, before the job that they are for.

They are kept packed in memory, for the user who sends them, until the job is submitted that names them. Then they are
in that job's event, all of them or none. Of an upload that is cut nothing remains after a while; a coordinator that
takes over knows none, and the client sends its rows again.
"""

from __future__ import annotations

from hashlib import blake2b

from msgspec import msgpack

from phalanx.api.schema.fields import check_number, check_text, shown
from phalanx.api.schema.params import check_columns, check_rows
from phalanx.api.schema.sweeps import UPLOAD_BYTES_MAX, RowsPiece, RowsTaken
from phalanx.clock import Clock
from phalanx.core.model.array import TASKS_MAX
from phalanx.core.model.parameters import ROWS_BYTES_MAX, RowPacker, SweepRows
from phalanx.errors import BadRequest, Conflict, TooMany, Unprocessable

EXPIRES_S = 120.0  # after its last piece
UPLOADS_MAX = 256
USER_UPLOADS_MAX = 16
BYTES_MAX = 8 * ROWS_BYTES_MAX  # of all uploads together, packed


class RowUpload:
    """One upload: what came, and the digest of the last piece, which may come again."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns = columns
        self.packer = RowPacker()
        self.pieces = 0
        self.last = b""
        self.touched_at = 0.0


class RowUploads:
    """All uploads, by user and by the name that the user gave."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._uploads: dict[tuple[str, str], RowUpload] = {}

    def take(self, user: str, piece: RowsPiece) -> RowsTaken:
        """Take the next piece, or the last one once more; a refusal takes nothing."""
        check_text("upload", piece.upload, UPLOAD_BYTES_MAX)
        check_number("piece", piece.piece, 0, TASKS_MAX)
        if not piece.upload:
            raise BadRequest("upload: it is empty, give a name such as a UUID")
        if not piece.rows:
            raise BadRequest(f"rows: piece {piece.piece} has none")
        self._expire()
        upload = self._upload(user, piece)
        digest = blake2b(msgpack.encode(piece.rows), digest_size=16).digest()
        if not (piece.piece == upload.pieces - 1 and digest == upload.last):
            self._add(upload, piece)
            upload.last, upload.pieces = digest, upload.pieces + 1
            self._uploads[user, piece.upload] = upload
        upload.touched_at = self._clock.now()
        return RowsTaken(piece.upload, upload.pieces, upload.packer.count, EXPIRES_S)

    def rows(self, user: str, name: str) -> SweepRows:
        """All rows of an upload; raises Conflict (`UploadUnknown`) if there is none of that user."""
        self._expire()
        upload = self._uploads.get((user, name))
        if upload is None:
            raise _unknown(name)
        return upload.packer.rows(upload.columns)

    def has(self, user: str, name: str) -> bool:
        return (user, name) in self._uploads

    def drop(self, user: str, name: str) -> None:
        """They have become a job's."""
        self._uploads.pop((user, name), None)

    def _upload(self, user: str, piece: RowsPiece) -> RowUpload:
        """The upload that a piece belongs to: one that is known, or a new one that begins with it."""
        upload = self._uploads.get((user, piece.upload))
        if upload is None:
            if piece.piece:
                raise _unknown(piece.upload)
            self._check_room(user)
            return RowUpload(check_columns(piece.columns, "columns"))
        if tuple(piece.columns) != upload.columns:
            raise BadRequest(
                f"columns: piece {piece.piece} has {shown(piece.columns)}, expected {shown(list(upload.columns))}"
            )
        if piece.piece not in (upload.pieces - 1, upload.pieces):
            raise Conflict(
                f"piece: {piece.piece} is not the next one: {upload.pieces} is expected",
                reason="PieceUnexpected",
            )
        return upload

    def _add(self, upload: RowUpload, piece: RowsPiece) -> None:
        if piece.piece != upload.pieces:
            raise Conflict(
                f"piece: {piece.piece} came before with other rows; {upload.pieces} is expected",
                reason="PieceUnexpected",
            )
        check_rows(piece.rows, upload.columns, upload.packer.count + 1, "rows")
        if upload.packer.count + len(piece.rows) > TASKS_MAX:
            raise Unprocessable(
                f"rows: more than {TASKS_MAX} are too many for one sweep", reason="OutOfRange"
            )
        if upload.packer.bytes > ROWS_BYTES_MAX:
            raise Unprocessable(
                f"rows: more than {ROWS_BYTES_MAX >> 20} MiB, compressed, are too much for one sweep",
                reason="OutOfRange",
            )
        upload.packer.add(piece.rows)

    def _check_room(self, user: str) -> None:
        own = sum(owner == user for owner, _ in self._uploads)
        held = sum(upload.packer.bytes for upload in self._uploads.values())
        if own >= USER_UPLOADS_MAX or len(self._uploads) >= UPLOADS_MAX or held > BYTES_MAX:
            whose = f"{own} of yours" if own >= USER_UPLOADS_MAX else str(len(self._uploads))
            raise TooMany(
                f"{whose} uploads of rows are unfinished; each is forgotten {EXPIRES_S:g} s after its last piece",
                reason="UploadsFull",
                retry_after_s=5.0,
            )

    def _expire(self) -> None:
        before = self._clock.now() - EXPIRES_S
        for key in [key for key, upload in self._uploads.items() if upload.touched_at < before]:
            del self._uploads[key]


def _unknown(name: str) -> Conflict:
    return Conflict(
        f"rows: there is no upload {shown(name)} of yours: it took too long, or another coordinator leads now",
        reason="UploadUnknown",
        hint="send the rows again, from the first piece on",
    )
