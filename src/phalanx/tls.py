"""TLS: the contexts of clients, runners and coordinators, and readable messages for their errors.

`certificates.py` makes and reads certificates. A context is costly to make, so each process makes its own once and
keeps it; a coordinator makes a new one when its files have changed.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from phalanx.errors import ConfigError

NODE_URI = "phalanx://node/"
# Forward secrecy and authenticated encryption; TLS 1.3 has nothing else.
CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"


class TlsFiles(NamedTuple):
    """The CA that we trust, and the certificate that we present."""

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    @property
    def are_there(self) -> bool:
        return any(self)


NO_TLS = TlsFiles()


class TlsProblem(NamedTuple):
    """What a TLS error means, and what to do."""

    text: str
    hint: str
    is_lasting: bool = True  # a retry does not help until something is changed


def client_context(tls_files: TlsFiles) -> ssl.SSLContext:
    """For clients: the server must prove its name, to our own authority if we have one."""
    with _named(tls_files):
        context = ssl.create_default_context(cafile=tls_files.ca_file)
        _harden(context)
        if tls_files.cert_file is not None:
            context.load_cert_chain(tls_files.cert_file, tls_files.key_file)
    return context


def server_context(tls_files: TlsFiles, *, mutual: bool) -> ssl.SSLContext:
    """For servers; with `mutual`, clients must present a certificate of our authority as well."""
    with _named(tls_files):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        _harden(context)
        context.load_cert_chain(tls_files.cert_file or "", tls_files.key_file)
        if mutual:
            context.load_verify_locations(tls_files.ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
    return context


class ClientTls:
    """The context of a client that connects again and again: a renewed certificate is used without a restart."""

    def __init__(self, tls_files: TlsFiles) -> None:
        self._tls_files = tls_files
        self._stamps = _look(tls_files)
        self._context = client_context(tls_files)

    def context(self) -> ssl.SSLContext:
        """The newest usable context. Files that are just being replaced are read at the next call."""
        with suppress(ConfigError):
            stamps = _look(self._tls_files)
            if stamps != self._stamps:
                self._context, self._stamps = client_context(self._tls_files), stamps
        return self._context


class Pem(NamedTuple):
    """The files themselves, for libraries that want their content."""

    ca: bytes | None
    cert: bytes | None
    key: bytes | None


def read_pem(tls_files: TlsFiles) -> Pem:
    with _named(tls_files):
        return Pem(*(None if path is None else path.read_bytes() for path in tls_files))


class ServerTls:
    """A coordinator's contexts. New connections get what was read last; open ones stay as they are."""

    def __init__(self, tls_files: TlsFiles) -> None:
        self._tls_files = tls_files
        self._stamps = _look(tls_files)
        self.rest, self.link = self._made()
        self.pem = read_pem(tls_files)

    def reload(self) -> bool:
        """Read the files again if they have changed. What cannot be used raises ConfigError and changes nothing."""
        stamps = _look(self._tls_files)
        if stamps == self._stamps:
            return False
        made, pem = self._made(), read_pem(self._tls_files)
        (self.rest, self.link), self.pem = made, pem
        self._stamps = stamps
        return True

    def _made(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        mutual = self._tls_files.ca_file is not None
        return server_context(self._tls_files, mutual=False), server_context(self._tls_files, mutual=mutual)


def peer_node(peer: ssl.SSLObject | None) -> str | None:
    """The node whose certificate the peer has presented: "" if it is not one of a node, None without any."""
    shown = peer.getpeercert() if peer is not None else None
    if not shown:
        return None
    names: Any = shown.get("subjectAltName", ())  # pairs, such as ("URI", "phalanx://node/n1")
    uris = [value for kind, value in names if kind == "URI" and value.startswith(NODE_URI)]
    return uris[0].removeprefix(NODE_URI) if len(uris) == 1 else ""


def explain(error: BaseException | None) -> TlsProblem | None:
    """The meaning of a TLS error, or None for another error. Libraries wrap them, so its causes are examined, too."""
    seen = 0
    while error is not None and not isinstance(error, ssl.SSLError) and seen < 8:
        error, seen = error.__cause__ or error.__context__, seen + 1
    if isinstance(error, ssl.SSLCertVerificationError):
        return _UNVERIFIED.get(error.verify_code) or TlsProblem(
            f"its certificate is not valid: {error.verify_message}",
            "`phalanx ca show FILE` shows a certificate",
        )
    if not isinstance(error, ssl.SSLError):
        return None
    code = error.reason or ""
    for word, said in _BROKEN.items():
        if word in code:
            return said
    hint = "is the coordinator running, and is it the one you mean?"
    return TlsProblem(
        f"TLS failed: {code or error}", hint, is_lasting=False
    )  # for example, a cut in the middle of a handshake


_UNKNOWN = TlsProblem(
    "its certificate is not from an authority you trust",
    "name the cluster's ca.crt: PHALANX_CA_FILE for commands, runner.tls_ca_file for runners",
)
_OTHER_NAME = TlsProblem(
    "its certificate is for other names than this one",
    "use a name that is in it, or issue it again: phalanx ca issue DIR --coordinator NAME --host THIS",
)
_UNVERIFIED = {
    9: TlsProblem("its certificate is not valid yet", "do both machines agree on the time?"),
    10: TlsProblem("its certificate has expired", "renew it: phalanx ca issue DIR ... --renew"),
    18: _UNKNOWN,
    19: _UNKNOWN,
    20: _UNKNOWN,
    21: _UNKNOWN,
    62: _OTHER_NAME,
    64: _OTHER_NAME,
}
_BROKEN = {
    "WRONG_VERSION_NUMBER": TlsProblem(
        "it does not use TLS", "use http://, or give the coordinator a certificate"
    ),
    "RECORD_LAYER_FAILURE": TlsProblem(
        "it does not use TLS", "use http://, or give the coordinator a certificate"
    ),
    "CERTIFICATE_REQUIRED": TlsProblem(
        "it asks for a certificate", "give tls_cert_file: phalanx ca issue DIR --node NAME"
    ),
    "ALERT_HANDSHAKE_FAILURE": TlsProblem(
        "it accepts none of our TLS versions and ciphers",
        "give tls_cert_file, if it asks for a certificate: phalanx ca issue",
    ),
    "CERTIFICATE_EXPIRED": TlsProblem(
        "our certificate has expired", "renew it: phalanx ca issue DIR ... --renew"
    ),
    "UNKNOWN_CA": TlsProblem(
        "it does not know who issued our certificate", "use one of the cluster's own authority"
    ),
    "BAD_CERTIFICATE": TlsProblem(
        "it refuses our certificate", "`phalanx ca show FILE` shows what it is for"
    ),
    "UNSUPPORTED_CERTIFICATE": TlsProblem(
        "our certificate is not for this use", "issue one with --node or --client"
    ),
}


def _look(tls_files: TlsFiles) -> list[tuple[int, int, int]]:
    """What shows whether a file has changed."""
    with _named(tls_files):
        found = [path.stat() for path in tls_files if path is not None]
    return [(each.st_mtime_ns, each.st_size, each.st_ino) for each in found]


def _harden(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)


@contextmanager
def _named(tls_files: TlsFiles) -> Iterator[None]:
    """Adds the name of the file to an error about it."""
    files = ", ".join(str(path) for path in tls_files if path is not None)
    try:
        yield
    except ssl.SSLError as error:
        what = (
            "the key does not belong to the certificate" if "MISMATCH" in (error.reason or "") else str(error)
        )
        raise ConfigError(
            f"certificates cannot be used ({files}): {what}", hint="`phalanx ca show FILE` shows one"
        ) from error
    except OSError as error:
        where = error.filename or files
        raise ConfigError(
            f"{where} cannot be read: {error.strerror}", hint="`phalanx ca` makes certificates"
        ) from error
