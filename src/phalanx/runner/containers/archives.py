"""Archives of images, as `docker save` and `podman save` write them, with a name of ours instead of theirs.

Whoever writes an archive chooses the names in it, and a runtime that loads it gives the image those names, taking them
from the images that had them. So an archive could put itself in the place of any image of other users. It is therefore
written anew on its way: the only name is one that we choose. Descriptions in the OCI's format, which have names as
well, are left out, and so is everything that could be one for a reader who sees other paths than we do: each file gets
a plain header and a path without dots, and nothing leads through a link.
"""

from __future__ import annotations

import io
import json
import posixpath
import tarfile
from collections.abc import Callable, Iterator
from typing import IO, Any, NoReturn, Self, cast

MANIFEST = "manifest.json"
_LEFT_OUT = ("repositories", "index.json", "oci-layout")
MANIFEST_BYTES_MAX = 4 << 20
MEMBERS_MAX = 100_000
PIECE_BYTES = 1 << 20
HEADER_BYTES_MAX = 64 << 10  # of a long name and the like, which is read into memory
_LINKED = "layer.tar"  # what may be a link, to the layer of another image: `docker save` makes such
_LONG = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME,
         tarfile.GNUTYPE_LONGLINK)  # fmt: skip


class NoArchive(ValueError):
    """It is not an archive of one image."""


def renamed(source: IO[bytes], name: str, read: Callable[[int], None]) -> Iterator[bytes]:
    """The archive with this name alone, in pieces; `read` is told how many bytes were read. Raises NoArchive."""
    try:
        with tarfile.open(fileobj=_Counted(source, read), mode="r|*", tarinfo=_Member) as old:
            found = False
            for member in _members(old):
                path = _plain(member.name)
                if path == MANIFEST:
                    found = True
                    yield from _manifest(old, member, name)
                elif path not in _LEFT_OUT:
                    yield from _copied(old, member, path)
            if not found:
                raise NoArchive(f"it has no {MANIFEST}: expected what docker save or podman save writes")
    except RecursionError:
        raise NoArchive("it cannot be read: it is nested too deeply") from None
    except (tarfile.TarError, EOFError, OSError) as error:
        raise NoArchive(f"it cannot be read: {error}") from None
    yield bytes(2 * tarfile.BLOCKSIZE)


def _members(old: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """One after the other; none is remembered, for there may be many."""
    count, kept = 0, cast("Any", old)
    while (member := old.next()) is not None:
        count += 1
        if count > MEMBERS_MAX:
            raise NoArchive(f"it has more than {MEMBERS_MAX} files")
        yield member
        kept.members.clear()
        kept.pax_headers.clear()


def _plain(name: str) -> str:
    """The path of a member as every reader has it. Raises NoArchive for one that leads out, or through a link."""
    path = posixpath.normpath(name)
    folders = path.split("/")[:-1]
    if path.startswith("/") or ".." in path.split("/") or _LINKED in folders or not path.isprintable():
        raise NoArchive(f"it has a file {name[:80]!r}, which is none of an image")
    return path


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


def _copied(old: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> Iterator[bytes]:
    """A file, or a link to a layer. Its content goes piece by piece, for a layer may be larger than memory."""
    made = tarfile.TarInfo(path)
    content = old.extractfile(member) if member.isreg() else None
    if content is not None:
        made.size = member.size
        yield made.tobuf()
        while piece := content.read(PIECE_BYTES):
            yield piece
        yield _padding(made.size)
    elif member.issym() and posixpath.basename(path) == _LINKED:
        made.type, made.linkname = tarfile.SYMTYPE, member.linkname
        yield made.tobuf()


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)


class _Member(tarfile.TarInfo):
    """A member whose headers are read into memory only if they are short."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        found = super().frombuf(buf, encoding, errors)
        if found.type == tarfile.GNUTYPE_SPARSE or (found.type in _LONG and found.size > HEADER_BYTES_MAX):
            raise tarfile.ReadError("it has a header that no image needs")
        return found

    def _proc_gnusparse_10(self, *_: object) -> NoReturn:
        """Called by `tarfile`: such a file has a table of any size in it."""
        raise tarfile.ReadError("it has a sparse file, which no image needs")


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
