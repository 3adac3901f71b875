"""Token files: only their owner may read them, and an unusable one is always an error.

A file whose mode lets others read it, as in a Secret of Kubernetes, is accepted if a folder above keeps them out.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from phalanx.errors import TokenError, Unavailable
from phalanx.settings import Secret

TOKEN = re.compile(r"[!-~]{1,4096}")
FILE_BYTES_MAX = 1 << 20
TOKENS_MAX = 1000
_FORM = "the file holds the token alone, as `phalanx token create` prints it: no JSON, no name before it"


def read_token(path: Path) -> Secret:
    """The one secret in a file that only its owner can read, as ssh demands of keys."""
    text = _read(path).strip()
    if not TOKEN.fullmatch(text):
        raise TokenError(f"token file {path} holds no token", hint=_FORM)
    return Secret(text)


def read_tokens(path: Path) -> tuple[Secret, ...]:
    """The tokens in such a file, separated by commas or lines; none, if it was emptied."""
    tokens = split_tokens(_read(path))
    if len(tokens) > TOKENS_MAX or not all(TOKEN.fullmatch(token) for token in tokens):
        raise TokenError(f"token file {path} holds something else than up to {TOKENS_MAX} tokens", hint=_FORM)
    return tokens


def first_token(path: Path) -> Secret:
    """The token to use, from a file that may hold several: while tokens are being replaced, each of them is valid."""
    tokens = read_tokens(path)
    if not tokens:
        raise TokenError(f"token file {path} holds no token")
    return tokens[0]


def split_tokens(text: str) -> tuple[Secret, ...]:
    return tuple(dict.fromkeys(Secret(each.strip()) for each in re.split(r"[,\n]", text) if each.strip()))


def ensure_token(path: Path) -> Secret:
    """The first token in `path`, created if there is none. Two processes that start at once agree on one."""
    make_token(path)
    return first_token(path)


def make_token(path: Path) -> None:
    """Create the file with a new token, unless it exists."""
    from secrets import token_urlsafe

    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            write_token(path, f"phx_{token_urlsafe(32)}\n", replace=False)
    except OSError as error:
        raise Unavailable(f"cannot write {path}: {error.strerror}", hint="try --state DIR") from error


def write_token(path: Path, text: str, *, replace: bool = True) -> None:
    """Write a secret durably, for its owner alone. Without `replace` an existing file stays."""
    from secrets import token_urlsafe

    draft = path.with_name(f".{path.name}.{token_urlsafe(6)}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    if replace:
        draft.replace(path)
        return
    with suppress(FileExistsError):
        os.link(draft, path)
    draft.unlink()


def is_open_to_others(path: Path, found: os.stat_result) -> bool:
    """Whether another account can read the file, or change it. A mode that lets others read is harmless inside a
    folder that they cannot enter; where a link leads is what counts."""
    if not found.st_mode & 0o077:
        return False
    return bool(found.st_mode & 0o022) or not _is_in_a_closed_folder(path)


def _is_in_a_closed_folder(path: Path) -> bool:
    try:
        for folder in path.resolve(strict=True).parents:
            found = folder.stat()
            if not found.st_mode & 0o011 and found.st_uid in {os.geteuid(), 0}:
                return True
    except OSError:
        pass  # it has just been replaced; the next read gets the new one
    return False


def _read(path: Path) -> str:
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            body = file.read(FILE_BYTES_MAX + 1) or b""
    except OSError as error:
        raise TokenError(f"token file {path} cannot be read: {error.strerror}") from error
    if is_open_to_others(path, found):
        raise TokenError(f"others may use {path} ({stat.filemode(found.st_mode)})", hint=f"chmod 600 {path}")
    if found.st_uid not in {os.geteuid(), 0}:
        hint = "copy it to your own file, or chown it to the user that runs this"
        raise TokenError(f"others may use {path}: it belongs to user {found.st_uid}, not to us", hint=hint)
    if not body and not stat.S_ISREG(
        found.st_mode
    ):  # an empty pipe has no content, and is not an emptied file
        raise TokenError(f"token file {path} is not a file")
    if len(body) > FILE_BYTES_MAX:
        raise TokenError(f"token file {path} is larger than {FILE_BYTES_MAX} bytes")
    return body.decode("latin-1")
