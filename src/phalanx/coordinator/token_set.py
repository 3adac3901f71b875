"""A set of accepted tokens that comes from settings: a value, a list, and a file that may change while we run.

At the start a file that cannot be used is fatal. Later it is not: an emptied file means nobody, but one that cannot be
read, or that others may read, leaves the set as it was, with a warning. Only digests are kept.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from pathlib import Path

from phalanx.api.server.auth import digest
from phalanx.core.model.credential import FINGERPRINT_CHARACTERS
from phalanx.errors import TokenError
from phalanx.logger import logger, told
from phalanx.tokenfile import make_token, read_tokens

log = logger("coordinator")


class TokenSet:
    """The accepted tokens of one kind of bearer, `whose` says which."""

    def __init__(
        self, whose: str, values: Iterable[str], path: Path | None = None, *, is_given: bool = False
    ) -> None:
        self._whose = whose
        self._values = frozenset(digest(token) for token in values)
        self._path = path
        self._trouble = ""
        self.digests = self._values
        if path is not None:
            self.digests |= self._first_read(path, is_given)
        log.info("tokens accepted", of=whose, fingerprints=_told(self.digests))

    def holds(self, shown: bytes) -> bool:
        """Whether a digest is one of ours. Every one is compared, so that time tells nothing."""
        found = False
        for accepted in self.digests:
            found |= hmac.compare_digest(accepted, shown)
        return found

    def reload(self) -> bool:
        """Read the file again; whether the set is another one now."""
        if self._path is None:
            return False
        try:
            found = self._values | {digest(token) for token in read_tokens(self._path)}
        except TokenError as error:
            if self._trouble != str(error):
                log.warning(
                    "tokens not reloaded, the previous ones stay valid", of=self._whose, **told(error)
                )
            self._trouble = str(error)
            return False
        self._trouble = ""
        if found == self.digests:
            return False
        added, removed = found - self.digests, self.digests - found
        log.info(
            "tokens changed", of=self._whose, added=_told(added), removed=_told(removed), left=len(found)
        )
        self.digests = found
        return True

    def _first_read(self, path: Path, is_given: bool) -> frozenset[bytes]:
        if not is_given:
            make_token(path)
        tokens = read_tokens(path)
        if not tokens:
            raise TokenError(
                f"token file {path} is empty, so no client could authenticate",
                hint="put a token into it" if is_given else f"remove {path}, and the next start makes one",
            )
        return frozenset(digest(token) for token in tokens)


def _told(digests: Iterable[bytes]) -> list[str]:
    return sorted(each.hex()[:FINGERPRINT_CHARACTERS] for each in digests)
