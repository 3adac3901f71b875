"""Keys of SSH: the public ones that users give, new pairs, and the host keys of VPSs.

Ed25519 alone is made here. Reading, writing and checking keys is the work of `cryptography`, which is imported only
where a key is at hand.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING

from phalanx.api.schema.fields import shown
from phalanx.errors import BadRequest

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

KEYS_MAX = 32
KEY_BYTES_MAX = 16 * 1024
RSA_BITS_MIN = 2048
KINDS = (
    "ssh-ed25519",
    "ssh-rsa",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)


def read_public_keys(field: str, text: str) -> tuple[str, ...]:
    """The keys of a text as authorized_keys has them, one on each line, without options; or BadRequest."""
    if "PRIVATE KEY" in text:
        raise BadRequest(
            f"{field}: this is a private key: give the public one, of the file that ends with .pub",
            hint="whoever has read it may have the key: make another with ssh-keygen",
        )
    lines = [line.strip() for line in text.splitlines()]
    keys = tuple(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise BadRequest(
            f"{field}: there is no key in it: give a line such as 'ssh-ed25519 AAAA… name'",
            reason="KeyMissing",
        )
    if len(keys) > KEYS_MAX:
        raise BadRequest(f"{field}: {len(keys)} keys, give at most {KEYS_MAX}")
    for key in keys:
        _check(field, key)
    return keys


def _check(field: str, line: str) -> None:
    kind, _, rest = line.partition(" ")
    if kind not in KINDS:
        raise BadRequest(
            f"{field}: {shown(line)} does not begin with the kind of a key: give one of {', '.join(KINDS)}"
        )
    if len(line) > KEY_BYTES_MAX or not line.isprintable():
        raise BadRequest(f"{field}: a key has at most {KEY_BYTES_MAX} characters, all printable")
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import load_ssh_public_key

    body = rest.partition(" ")[0]
    try:
        if kind.startswith("sk-"):  # of a token: `cryptography` does not read them, and the server does
            _check_body(kind, body)
            return
        found = load_ssh_public_key(f"{kind} {body}".encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadRequest(f"{field}: {shown(line)} is not a key: {error}") from None
    if isinstance(found, RSAPublicKey) and found.key_size < RSA_BITS_MIN:
        raise BadRequest(
            f"{field}: an RSA key of {found.key_size} bits, give one of at least {RSA_BITS_MIN}, or ed25519"
        )


def _check_body(kind: str, body: str) -> None:
    raw = b64decode(body, validate=True)
    name = kind.encode()
    if raw[:4] != len(name).to_bytes(4, "big") or raw[4 : 4 + len(name)] != name:
        raise ValueError("its kind and its content differ")


def fingerprint(line: str) -> str:
    """How ssh shows a public key: SHA256:…"""
    digest = hashlib.sha256(b64decode(line.split()[1])).digest()
    return "SHA256:" + b64encode(digest).decode().rstrip("=")


def new_pair(comment: str) -> tuple[str, str]:
    """A new private key, as OpenSSH writes it, and its public line."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    return _private(key), f"{_public(key)} {comment}"


def host_key(seed: bytes) -> tuple[str, str]:
    """The key that follows from 32 bytes: private, as OpenSSH writes it, and its public line."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.from_private_bytes(seed)
    return _private(key), _public(key)


def _private(key: Ed25519PrivateKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()).decode()


def _public(key: Ed25519PrivateKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
