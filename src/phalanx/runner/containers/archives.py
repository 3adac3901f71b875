"""Archives of images, as `docker save` and `podman save` write them, with a name of ours instead of theirs.

Whoever writes an archive chooses the names in it, and a runtime that loads it gives the image those names, taking them
from the images that had them. So an archive could put itself in the place of any image of other users. It is therefore
rewritten on its way: the only name is one that we choose. Descriptions in the OCI's format, which have names as well,
are left out.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Iterator
from typing import IO, Any

MANIFEST = "manifest.json"
_LEFT_OUT = ("repositories", "index.json", "oci-layout")
MANIFEST_BYTES_MAX = 4 << 20
MEMBERS_MAX = 100_000
PIECE_BYTES = 1 << 20


class NoArchive(ValueError):
    """It is not an archive of one image."""


def renamed(source: IO[bytes], name: str, read: Callable[[int], None]) -> Iterator[bytes]:
    """The archive with this name alone, in pieces; `read` is told how many bytes were read. Raises NoArchive."""
    try:
        with tarfile.open(fileobj=_Counted(source, read), mode="r|*") as old:
            found = False
            for number, member in enumerate(old):
                if number >= MEMBERS_MAX:
                    raise NoArchive(f"it has more than {MEMBERS_MAX} files")
                path = member.name.removeprefix("./")
                if path == MANIFEST:
                    found = True
                    yield from _manifest(old, member, name)
                elif path not in _LEFT_OUT:
                    yield from _copied(old, member)
            if not found:
                raise NoArchive(f"it has no {MANIFEST}: expected what docker save or podman save writes")
    except (tarfile.TarError, EOFError, OSError) as error:
        raise NoArchive(f"it cannot be read: {error}") from None
    yield bytes(2 * tarfile.BLOCKSIZE)


def _manifest(old: tarfile.TarFile, member: tarfile.TarInfo, name: str) -> Iterator[bytes]:
    content = old.extractfile(member) if member.size <= MANIFEST_BYTES_MAX else None
    try:
        images: Any = json.loads(content.read()) if content is not None else None
    except ValueError:
        images = None
    if not isinstance(images, list) or len(images) != 1 or not isinstance(images[0], dict):
        raise NoArchive(f"its {MANIFEST} does not describe one image")
    text = json.dumps([{**images[0], "RepoTags": [name]}]).encode()
    made = tarfile.TarInfo(MANIFEST)
    made.size = len(text)
    yield made.tobuf()
    yield text + _padding(len(text))


def _copied(old: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    """A member as it is. Its content goes piece by piece, for a layer may be larger than memory."""
    content = old.extractfile(member) if member.isreg() else None
    yield member.tobuf()
    while content is not None and (piece := content.read(PIECE_BYTES)):
        yield piece
    if content is not None:
        yield _padding(member.size)


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)


class _Counted(io.RawIOBase):
    """A file that says how much was read of it."""

    def __init__(self, file: IO[bytes], read: Callable[[int], None]) -> None:
        super().__init__()
        self._file = file
        self._told = read
        self._count = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        piece = self._file.read(size)
        self._count += len(piece)
        self._told(self._count)
        return piece
