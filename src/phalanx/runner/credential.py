"""What a runner shows to its coordinator: the credential of its node, or the token it started with.

A join token is exchanged once for the node's own credential, which is kept in the state folder for the next start. A
token that was put into the settings later than that takes precedence over it.
"""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

from msgspec import MsgspecError, Struct, json

from phalanx.errors import TokenError
from phalanx.logger import logger, told
from phalanx.runner.keeper import system
from phalanx.settings import Settings
from phalanx.tokenfile import first_token, read_token, write_token

log = logger("runner")
NAME = "credential"


class Kept(Struct, frozen=True):
    """The node's credential, and the token it was given for (as a digest)."""

    node: str
    token: str
    given_for: str


class NodeCredential:
    """The token to show, read again for every connection, because files are changed while we run."""

    def __init__(self, settings: Settings) -> None:
        section, given = settings.runner, settings.given
        ranks = [said[0].rank for key in ("runner.token_file", "runner.token") if (said := given.get(key))]
        # Of equally strong sources the file is taken: a variable is visible to every child.
        is_file = section.token is None or (len(ranks) == 2 and ranks[0] <= ranks[1])
        self._value = None if is_file else str(section.token)
        self._file = section.token_file
        self._node = section.name
        self._path = Path(section.state_dir) / NAME
        self._kept = self._load()
        self._shown = ""

    def shown(self) -> str:
        """The token to show now; its file may have changed. An unusable one is fatal at the start."""
        if self._kept is not None and self._value is None and not self._file.exists():
            self._shown = self._kept.token  # a join token is of no use any more, and may be gone
            return self._shown
        try:
            begun = self._begun()
        except TokenError as error:
            if not self._shown:
                raise
            log.warning("the token cannot be read again; the old one is used", **told(error))
            return self._shown
        is_for_it = self._kept is not None and self._kept.given_for == _digest(begun)
        self._shown = self._kept.token if self._kept is not None and is_for_it else begun
        return self._shown

    def keep(self, token: str) -> None:
        """The coordinator gave the node its own credential: never lose it, it is given once."""
        self._kept = Kept(self._node, token, _digest(self._shown))
        try:
            system.set_aside(str(self._path), unless=lambda mode: not stat.S_ISDIR(mode))
            write_token(self._path, json.encode(self._kept).decode() + "\n")
        except OSError as error:
            log.error("the node's credential cannot be stored", path=str(self._path), error=str(error))
        else:
            log.info("the node has received its own credential", fingerprint=_digest(token)[:16])

    def _begun(self) -> str:
        """The token it started with; raises TokenError."""
        return self._value or str(first_token(self._file))

    def _load(self) -> Kept | None:
        """The stored credential. Tasks can write there: an unusable one is fatal only if there is no other token."""
        try:
            return self._read()
        except TokenError as error:
            try:
                self._begun()
            except TokenError:
                raise error from None
            log.warning(
                "the node's own credential cannot be used; the token of the settings is", **told(error)
            )
            return None

    def _read(self) -> Kept | None:
        try:
            system.set_aside(str(self._path), unless=lambda mode: stat.S_ISREG(mode) or stat.S_ISLNK(mode))
        except OSError as error:
            raise TokenError(f"{self._path} cannot be set aside: {error.strerror}") from error
        if not self._path.exists():
            return None
        try:
            kept = json.decode(read_token(self._path).encode(), type=Kept)
        except MsgspecError as error:
            hint = f"remove {self._path} and join again"
            raise TokenError(f"{self._path} holds no credential of a node: {error}", hint=hint) from error
        return kept if kept.node == self._node else None


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
