"""Sealing environments: authenticated encryption with a key that is derived from the cluster's secret.

The same environment of the same user is sealed to the same bytes and has the same digest (AES-SIV, RFC 5297), so that
it is kept once, a repeated request is known again, and a simulated run repeats itself. Digests are keyed: without the
secret nobody can try values against them. What is sealed belongs to one user and says so in what is authenticated, so
that bytes that were moved in the store to somebody else's job are not opened.

Sealed bytes begin with a version and the id of their key. The first line of the secret file makes the key that seals;
the keys of older lines only open.
"""

from __future__ import annotations

import hashlib
import hmac
import zlib
from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import MsgspecError, Struct, msgpack

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESSIV

VERSION = b"\x01"
KEY_ID_BYTES = 4
DIGEST_BYTES = 21  # 28 letters
REMEMBERED = 256  # sealed environments, so that one is not encrypted anew for each of thousands of jobs
OPENED_BYTES_MAX = 8 << 20


class TaskEnvironment(Struct, frozen=True, array_like=True):
    """What is sealed: the environment of whoever submits, and the variables that were given to the job itself."""

    exported: dict[str, str] = {}
    env: dict[str, str] = {}


class CannotOpen(Exception):
    """Sealed bytes that none of our keys opens; the message says which key it takes, or that they are damaged."""


class EnvironmentKeys:
    """The keys of one cluster, the one that seals first."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._keys = {key.id: key for key in map(_Key, reversed(secrets))}
        self._first = self._keys[_Key(secrets[0]).id]
        self._remembered: OrderedDict[str, bytes] = OrderedDict()

    def seal(self, user: str, content: TaskEnvironment) -> tuple[str, bytes]:
        """The digest by which jobs name it, and the sealed bytes."""
        plain = msgpack.encode(
            TaskEnvironment(dict(sorted(content.exported.items())), dict(sorted(content.env.items())))
        )
        digest = self._first.digest(user, plain)
        if (sealed := self._remembered.get(digest)) is None:
            sealed = self._remembered[digest] = self._first.seal(user, plain)
            if len(self._remembered) > REMEMBERED:
                self._remembered.popitem(last=False)
        else:
            self._remembered.move_to_end(digest)
        return digest, sealed

    def open(self, user: str, sealed: bytes) -> TaskEnvironment:
        """What was sealed for this user; raises CannotOpen."""
        if sealed[:1] != VERSION:
            raise CannotOpen("it was written by a newer version, or is damaged")
        id, body = sealed[1 : 1 + KEY_ID_BYTES], sealed[1 + KEY_ID_BYTES :]
        if (key := self._keys.get(id)) is None:
            raise CannotOpen(
                f"it takes the secret whose key is {id.hex()}, which is not in coordinator.secret_file any more"
            )
        return key.open(user, body)


class _Key:
    def __init__(self, secret: str) -> None:
        self._secret = hmac.new(secret.encode(), b"phalanx environments 1", hashlib.sha512).digest()
        self._digest_key = hmac.new(
            secret.encode(), b"phalanx environment digests 1", hashlib.sha256
        ).digest()
        self.id = hashlib.sha256(b"phalanx key id" + self._secret).digest()[:KEY_ID_BYTES]
        self._cipher: AESSIV | None = None

    def digest(self, user: str, plain: bytes) -> str:
        """Begins with the key's id: those of different keys cannot be compared."""
        mac = hmac.new(self._digest_key, user.encode() + b"\0" + plain, hashlib.sha256).digest()
        return f"{self.id.hex()}-{urlsafe_b64encode(mac[:DIGEST_BYTES]).decode()}"

    def seal(self, user: str, plain: bytes) -> bytes:
        body = self._opened_cipher().encrypt(zlib.compress(plain, 1), [VERSION + self.id, user.encode()])
        return VERSION + self.id + body

    def open(self, user: str, body: bytes) -> TaskEnvironment:
        from cryptography.exceptions import InvalidTag  # here, so that who opens none does not load it

        try:
            packed = self._opened_cipher().decrypt(body, [VERSION + self.id, user.encode()])
            plain = zlib.decompressobj().decompress(packed, OPENED_BYTES_MAX)
            return msgpack.decode(plain, type=TaskEnvironment)
        except (InvalidTag, ValueError, zlib.error, MsgspecError):
            raise CannotOpen("it is damaged, or belongs to another user's job") from None

    def _opened_cipher(self) -> AESSIV:
        if self._cipher is None:
            from cryptography.hazmat.primitives.ciphers.aead import AESSIV

            self._cipher = AESSIV(self._secret)
        return self._cipher


def is_of_another_key(digest: str, other: str) -> bool:
    """Whether two digests are of different keys, so that nothing follows from their being different."""
    return digest.partition("-")[0] != other.partition("-")[0]
