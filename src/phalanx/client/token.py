"""The token a client shows. One that came out of a file is read again when it is refused: it may have been replaced.

A refusal proves that nothing was executed, so any call may be made again with the new one.
"""

from __future__ import annotations

from pathlib import Path

from phalanx.errors import PhalanxError, TokenError, Unauthorized
from phalanx.tokenfile import first_token


class ClientToken:
    """The token of the moment. Threads may share it."""

    def __init__(self, value: str, file: Path | None = None) -> None:
        self.value = value
        self._file = file

    def is_replaced(self, refused: str) -> bool:
        """Whether there is another one to show by now than the one that was refused."""
        if self._file is None:
            return False
        try:
            self.value = str(first_token(self._file))
        except TokenError:
            return False
        return self.value != refused

    def blamed(self, error: PhalanxError) -> PhalanxError:
        """A refusal, with where the token came from."""
        if isinstance(error, Unauthorized) and self._file is not None:
            error.hint = f"it was read from {self._file}; `phalanx token create` makes another"
        return error
