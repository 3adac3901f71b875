"""Which project files may decide where a token goes: those that were trusted, by path and content.

A project file comes with a folder that anybody may have written, a cloned repository say. Until its reader trusts it
with `phalanx config trust` it may only choose how results look (`FREE`); a file that has changed since is a stranger
again. What is trusted stands in one file of the user's own. Which file is the project's is `config.py`'s business.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from msgspec import MsgspecError, Struct, json

from phalanx.errors import ConfigError, Conflict, Unavailable
from phalanx.tokenfile import write_token

FREE = frozenset({"output"})  # what any project file may set
TRUSTED_MAX = 1000
_FILE_BYTES_MAX = 4 << 20


class Trusted(Struct, frozen=True, forbid_unknown_fields=True):
    """What the file holds: SHA-256 digests of contents, by path."""

    files: dict[str, str]


class Trust:
    """The project files that were trusted, kept in `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def holds(self, file: Path, body: bytes) -> bool:
        """Whether this file was trusted with this very content."""
        return self.files().get(named(file)) == digest(body)

    def files(self) -> dict[str, str]:
        """The digests of what is trusted, by path."""
        if not self.path.exists():
            return {}
        try:
            with self.path.open("rb") as file:
                found = os.fstat(file.fileno())
                body = file.read(_FILE_BYTES_MAX)
            _check_ours(self.path, found)
            return json.decode(body, type=Trusted).files
        except (OSError, MsgspecError) as error:
            hint = "delete it, and trust your project files again"
            raise ConfigError(f"{self.path} cannot be read: {error}", hint=hint) from error

    def add(self, file: Path, body: bytes) -> None:
        files = self.files() | {named(file): digest(body)}
        if len(files) > TRUSTED_MAX:
            hint = "`phalanx config untrust FILE` forgets one"
            raise Conflict(f"{TRUSTED_MAX} project files are trusted already", hint=hint)
        self._write(files)

    def remove(self, file: Path) -> bool:
        """Forget a file; False if it was not trusted."""
        files = self.files()
        was_there = files.pop(named(file), None) is not None
        if was_there:
            self._write(files)
        return was_there

    def _write(self, files: dict[str, str]) -> None:
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_token(self.path, json.format(json.encode(Trusted(files)), indent=2).decode() + "\n")
        except OSError as error:
            raise Unavailable(f"cannot write {self.path}: {error.strerror}") from error


def named(file: Path) -> str:
    """A file's name in the list. Its folder is resolved; a link keeps its own name, for what it leads to may change."""
    return str(file.parent.resolve() / file.name)


def digest(body: bytes) -> str:
    from hashlib import sha256  # Most folders have no project file, and then this costs nothing.

    return sha256(body).hexdigest()


def _check_ours(path: Path, found: os.stat_result) -> None:
    """Whoever can write here could trust anything in our name."""
    if found.st_uid not in {os.geteuid(), 0} or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(
            f"others may write {path} ({stat.filemode(found.st_mode)}, user {found.st_uid})",
            hint=f"look at it with `phalanx config trust --list`, or delete it; then chmod 600 {path}",
        )
