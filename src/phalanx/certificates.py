"""Certificates: the cluster's own authority, the certificates it issues, and reading existing ones.

The names of machines are in a certificate as DNS names and addresses. The identity of a node is a URI in it,
phalanx://node/NAME, and only that is trusted. `tls.py` uses the certificates.
"""

from __future__ import annotations

import ipaddress
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

from phalanx.clock import SystemClock
from phalanx.errors import ConfigError, Conflict

Kind = Literal["coordinator", "node", "client"]
E = TypeVar("E", bound=x509.ExtensionType)

CA_DAYS, LEAF_DAYS, DAYS_MAX = 3650, 90, 3650
SLACK = timedelta(minutes=5)  # clocks of two machines differ a little
FILE_BYTES_MAX = 1 << 20
NAME = re.compile(r"[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?")
TITLE = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,62}")
HOST = re.compile(r"(?=.{1,253}\Z)(?:[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?\.?)+")
CA_CERT, CA_KEY, CERT, KEY = "ca.crt", "ca.key", "tls.crt", "tls.key"
_URI = re.compile(r"phalanx://(coordinator|node|client)/(.+)")
_USES = {
    "coordinator": ExtendedKeyUsageOID.SERVER_AUTH,
    "node": ExtendedKeyUsageOID.CLIENT_AUTH,
    "client": ExtendedKeyUsageOID.CLIENT_AUTH,
}


class CertificateView(Struct):
    """One certificate, in readable form. `kind` is authority, coordinator, node, client, or other."""

    kind: str
    name: str
    hosts: list[str]
    issuer: str
    valid_from: str
    valid_until: str
    days_left: int
    fingerprint: str


def make_authority(folder: Path, title: str, days: int = CA_DAYS) -> None:
    """A new authority in `folder`: ca.crt is public, ca.key is private."""
    if not TITLE.fullmatch(title):
        raise ConfigError(f"name {title[:80]!r}: expected letters, digits, spaces and .-_, at most 63")
    _refuse_overwriting(folder, CA_CERT, CA_KEY)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, title)])
    builder = (
        _dated(x509.CertificateBuilder(), days)
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write(folder / CA_KEY, _key_pem(key), 0o600)
    _write(folder / CA_CERT, _pem(builder.sign(key, hashes.SHA256())), 0o644)


def issue(
    authority: Path,
    kind: Kind,
    name: str,
    hosts: list[str],
    out: Path,
    days: int = LEAF_DAYS,
    *,
    renew: bool = False,
) -> None:
    """A certificate with its key, and a copy of ca.crt, in the folder `out`."""
    _check_request(kind, name, hosts, days)
    if not renew:
        _refuse_overwriting(out, CERT, KEY)
    ca, ca_key = _read_authority(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    names = [x509.UniformResourceIdentifier(f"phalanx://{kind}/{name}"), *map(_general_name, hosts)]
    issuer_id = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    builder = (
        _dated(x509.CertificateBuilder(), days, ca.not_valid_after_utc)
        .subject_name(subject)
        .issuer_name(ca.subject)
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([_USES[kind]]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_id), critical=False
        )
    )
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    _write(out / KEY, _key_pem(key), 0o600)
    _write(out / CERT, _pem(builder.sign(ca_key, hashes.SHA256())), 0o644)
    _write(out / CA_CERT, _pem(ca), 0o644)


def show(path: Path) -> CertificateView:
    """The contents of a certificate."""
    found = _read_certificate(path)
    names = _names(found)
    kind, name = _identity(found, names)
    left = found.not_valid_after_utc - _now()
    return CertificateView(
        kind=kind,
        name=name,
        hosts=hosts_of(found),
        issuer=found.issuer.rfc4514_string(),
        valid_from=found.not_valid_before_utc.isoformat(),
        valid_until=found.not_valid_after_utc.isoformat(),
        days_left=left.days,
        fingerprint=found.fingerprint(hashes.SHA256()).hex(),
    )


def hosts_in(path: Path) -> list[str]:
    """The names and addresses that the certificate in a file is good for."""
    return hosts_of(_read_certificate(path))


def hosts_of(certificate: x509.Certificate) -> list[str]:
    names = _names(certificate)
    if names is None:
        return []
    addresses = names.get_values_for_type(x509.IPAddress)
    return [*names.get_values_for_type(x509.DNSName), *map(str, addresses)]


def _identity(found: x509.Certificate, names: x509.SubjectAlternativeName | None) -> tuple[str, str]:
    basic = _extension(found, x509.BasicConstraints)
    common = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    title = str(common[0].value) if common else ""
    if basic is not None and basic.ca:
        return "authority", title
    uris = names.get_values_for_type(x509.UniformResourceIdentifier) if names is not None else []
    ours = [match for match in map(_URI.fullmatch, uris) if match]
    return (ours[0][1], ours[0][2]) if len(ours) == 1 else ("other", title)


def _check_request(kind: Kind, name: str, hosts: list[str], days: int) -> None:
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"{kind} {name[:80]!r}: expected lower-case letters, digits, '.', '_' and '-', such as n-1.rack-2"
        )
    if kind == "coordinator" and not hosts:
        raise ConfigError(
            "a coordinator needs the names it is reached by", hint="give --host for each of them"
        )
    if kind != "coordinator" and hosts:
        raise ConfigError(f"--host: a {kind} is known by its name alone")
    if not 1 <= days <= DAYS_MAX:
        raise ConfigError(f"days = {days}: expected a number from 1 to {DAYS_MAX}")


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        pass
    if not HOST.fullmatch(host):
        raise ConfigError(f"host {host[:80]!r}: expected a host name or an IP address")
    return x509.DNSName(host)


def _dated(
    builder: x509.CertificateBuilder, days: int, at_most: datetime | None = None
) -> x509.CertificateBuilder:
    now = _now()
    until = now + timedelta(days=days)
    if at_most is not None and at_most <= now:
        raise ConfigError(
            "the authority's own certificate has expired", hint="make a new one: phalanx ca init"
        )
    return (
        builder.serial_number(x509.random_serial_number())
        .not_valid_before(now - SLACK)
        .not_valid_after(until if at_most is None else min(until, at_most))
    )


def _now() -> datetime:
    return datetime.fromtimestamp(SystemClock().now(), UTC)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _read_authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    path = folder / CA_KEY
    certificate = _read_certificate(folder / CA_CERT)
    try:
        mode = path.stat().st_mode
        if mode & 0o077:
            raise ConfigError(f"others may read {path}", hint=f"chmod 600 {path}")
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as error:
        raise ConfigError(
            f"{path} cannot be read: {error}", hint="phalanx ca init makes an authority"
        ) from error
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise ConfigError(f"{path} is not the key to {folder / CA_CERT}")
    return certificate, key


def _read_certificate(path: Path) -> x509.Certificate:
    try:
        with path.open("rb") as file:
            return x509.load_pem_x509_certificate(file.read(FILE_BYTES_MAX))
    except (OSError, ValueError) as error:
        why = "it holds no certificate" if isinstance(error, ValueError) else error.strerror
        raise ConfigError(f"{path} cannot be read: {why}") from error


def _names(certificate: x509.Certificate) -> x509.SubjectAlternativeName | None:
    return _extension(certificate, x509.SubjectAlternativeName)


def _extension(certificate: x509.Certificate, kind: type[E]) -> E | None:
    try:
        return certificate.extensions.get_extension_for_class(kind).value
    except (x509.ExtensionNotFound, ValueError):
        return None


def _refuse_overwriting(folder: Path, *names: str) -> None:
    there = [str(folder / name) for name in names if (folder / name).exists()]
    if there:
        raise Conflict(
            f"already there: {', '.join(there)}",
            hint="give another folder; `phalanx ca issue ... --renew` renews a certificate, a CA is never replaced",
        )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _write(path: Path, body: bytes, mode: int) -> None:
    """Write the file whole or not at all, with its mode from the first moment on."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
