"""A clock that is set by hand, and files with tokens, for the tests of credentials."""

from __future__ import annotations

from pathlib import Path

from phalanx.config import load
from phalanx.coordinator.credentials import Credentials


class Hands:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.at = 1000.0

    def now(self) -> float:
        return self.at

    def monotonic(self) -> float:
        return self.at


def a_file(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def opened(folder: Path, clock: Hands | None = None, **given: object) -> Credentials:
    flags = {key.replace("__", "."): value for key, value in given.items()} | {"state_dir": folder}
    return Credentials.open(load(flags, environment={"HOME": str(folder)}, folder=folder), clock or Hands())


def names(credentials: Credentials, *tokens: str) -> list[bool]:
    return [credentials.accepts_user(token) is not None for token in tokens]
