"""What a runner tells the server of a VPS, in a file beside its home folder. No I/O.

The file is the runner's own: the server reads it before it takes on the account of its VPS. It has the private host
key, so that the key is neither in an environment nor on a command line, nor readable for other tasks of the account.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

OPTIONS = "server.json"
HOME = "home"
CONTAINER_HOME = "/home/vps"  # where the home is in a container
# What the container of a VPS runs. It ends with a code other than 0, for a VPS never completes.
HOLD = ("/bin/sh", "-c", "trap 'exit 143' TERM; while :; do sleep 3600 & wait $!; done")


class ServerOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """Where the server listens, who may log in, and as which server it is known; without a port there is no SSH."""

    home: str
    port: int = 0
    addresses: tuple[str, ...] = ()
    host_key: str = ""  # private, as OpenSSH writes it
    keys: tuple[str, ...] = ()  # public ones, as authorized_keys has them
    account: tuple[int, int, tuple[int, ...]] | None = None  # uid, gid and groups to take on; None: as it is


def encode(options: ServerOptions) -> bytes:
    return msgspec.json.encode(options)


def decode(content: bytes) -> ServerOptions:
    return msgspec.json.decode(content, type=ServerOptions)
