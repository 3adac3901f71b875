"""Files that hold tokens: only their owner may read them, and one that cannot be used is never passed over."""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from phalanx.errors import TokenError, Unavailable
from phalanx.settings import Secret

TOKEN = re.compile(r"[!-~]{1,4096}")


def read_token(path: Path) -> Secret:
    """The token in a file that only its owner may read, as ssh demands of keys."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            text = (file.read(5000) or b"").decode("latin-1").strip()
    except OSError as error:
        raise TokenError(f"token file {path} cannot be read: {error.strerror}") from error
    if found.st_mode & 0o077 or found.st_uid not in {os.geteuid(), 0}:
        raise TokenError(f"others may use {path} ({stat.filemode(found.st_mode)})", hint=f"chmod 600 {path}")
    if not TOKEN.fullmatch(text):
        raise TokenError(f"token file {path} holds no token")
    return Secret(text)


def ensure_token(path: Path) -> Secret:
    """The token in `path`, made if there is none. Two that start at once agree on one."""
    from secrets import token_urlsafe

    draft = path.with_name(f".{path.name}.{token_urlsafe(6)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(f"phx_{token_urlsafe(32)}\n")
                file.flush()
                os.fsync(file.fileno())
            with suppress(FileExistsError):
                os.link(draft, path)
            draft.unlink()
    except OSError as error:
        raise Unavailable(f"cannot write {path}: {error.strerror}", hint="try --state DIR") from error
    return read_token(path)
