"""How a client gets to its cluster: the addresses, the token and the certificates, given or found in the settings.

A token that came out of a file is read again when it is refused: it may have been replaced. A refusal proves that
nothing was executed, so any call may be made again with the new one.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple
from warnings import warn

from phalanx.client.http import HttpTransport, Transport
from phalanx.client.leader import PATIENCE_S, addresses_of
from phalanx.config import load
from phalanx.endpoint import connection
from phalanx.errors import PhalanxError, TokenError, Unauthorized
from phalanx.settings import Settings
from phalanx.tls import NO_TLS, TlsFiles, client_context
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
            error.hint = f"it was read from {self._file}; {error.hint}"
        elif isinstance(error, Unauthorized) and self.value:
            error.hint = (
                "give another token to the client, or set client.token_file (PHALANX_TOKEN_FILE);"
                " `phalanx token create` makes one"
            )
        return error


class ApiAccess(NamedTuple):
    """`tls` is for the https addresses among them, `vouched` says whether it believes our own authority only."""

    addresses: tuple[str, ...]
    token: str
    tls: ssl.SSLContext | None = None
    vouched: bool = False
    token_file: Path | None = None  # where the token came from, if it was a file
    tls_files: TlsFiles = NO_TLS  # the same as `tls`, for gRPC

    @property
    def is_grpc(self) -> bool:
        return self.addresses[0].startswith("grpc")


def transport(
    found: ApiAccess,
    patience_s: float = PATIENCE_S,
    on_stale: Callable[[str], None] | None = None,
    on_search: Callable[[PhalanxError], None] | None = None,
) -> Transport:
    """What carries the calls of a client that waits. gRPC is loaded only if the address asks for it."""
    if found.is_grpc:
        from phalanx.client.rpc import ThreadedGrpcTransport

        return ThreadedGrpcTransport(
            found.addresses, found.tls_files, vouched=found.vouched, patience_s=patience_s, on_stale=on_stale
        )
    return HttpTransport(
        found.addresses,
        found.tls,
        vouched=found.vouched,
        patience_s=patience_s,
        on_stale=on_stale,
        on_search=on_search,
    )


def access(address: str | Sequence[str] | None, token: str | None, tls_files: TlsFiles) -> ApiAccess:
    """What was given, and the settings for the rest; if all was given, settings are not read."""
    if address is not None and token is not None:
        found = ApiAccess(addresses_of(address), token)
        if not any(map(_is_secure, found.addresses)):
            return found
        if tls_files.are_there:
            return _with_tls(found, tls_files)
    text = address if isinstance(address, str | None) else ",".join(address)
    settings = load({"client.address": text, "client.token": token})
    if settings.untrusted:
        warn(f"{settings.untrusted}; ignored until `phalanx config trust`", stacklevel=4)
    return reach_by(settings, tls_files)


def reach_by(settings: Settings, tls_files: TlsFiles = NO_TLS) -> ApiAccess:
    """What the settings say; `tls_files` are stronger."""
    there, client = connection(settings), settings.client
    found = ApiAccess(there.addresses, there.token, token_file=there.token_file)
    if not any(map(_is_secure, found.addresses)):
        return found
    task = settings.task
    ca_file = task.ca_file if task is not None and there.addresses == (task.address,) else None
    own = TlsFiles(client.ca_file or ca_file, client.cert_file, client.key_file)
    named = tls_files if tls_files.are_there else own
    return _with_tls(found, named)


def _with_tls(found: ApiAccess, tls_files: TlsFiles) -> ApiAccess:
    tls = None if found.is_grpc else client_context(tls_files)
    return found._replace(tls=tls, tls_files=tls_files, vouched=tls_files.ca_file is not None)


def _is_secure(address: str) -> bool:
    return address.startswith(("https://", "grpcs://"))
