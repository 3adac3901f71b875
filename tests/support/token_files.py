"""Files with tokens, and credentials read from them."""

from __future__ import annotations

from pathlib import Path

from phalanx.config import load
from phalanx.coordinator.credentials import Credentials
from tests.support.clocks import ManualClock


def a_file(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def opened(folder: Path, clock: ManualClock | None = None, **given: object) -> Credentials:
    flags = {key.replace("__", "."): value for key, value in given.items()} | {"state_dir": folder}
    return Credentials.open(
        load(flags, environment={"HOME": str(folder)}, folder=folder), clock or ManualClock()
    )


def names(credentials: Credentials, *tokens: str) -> list[bool]:
    return [credentials.accepts_user(token) is not None for token in tokens]
