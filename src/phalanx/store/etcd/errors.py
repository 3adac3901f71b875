"""Translates errors of gRPC and etcd, with hints about what to do."""

from __future__ import annotations

import grpc  # type: ignore[import-untyped]

from phalanx.store.etcd.kv import EtcdRefused, EtcdUnavailable
from phalanx.store.protocol import StoreError

_Code = grpc.StatusCode
# Parts of etcd's messages, with the hint for each. These are answers: nothing was changed.
_REFUSED = {
    "database space exceeded": "etcd is out of space (alarm NOSPACE): compact and defragment it, raise "
    "--quota-backend-bytes, then `etcdctl alarm disarm`",
    "request is too large": "etcd accepts only smaller requests: is --max-request-bytes below its default?",
    "too many operations": "etcd accepts only fewer operations at once: is --max-txn-ops below its default?",
    "larger than max": "etcd accepts only smaller requests: is --max-request-bytes below its default?",
    "permission denied": "etcd does not allow that to our user: grant it readwrite on the whole prefix",
    "authentication failed": "etcd does not accept coordinator.store_user with the password of store_password_file",
    "user name is empty": "etcd requires a user: set coordinator.store_user and coordinator.store_password_file",
    "authentication is not enabled": "etcd has no authentication: leave out coordinator.store_user",
    "lease not found": "the lease is over",
    "corrupt": "etcd found itself corrupt: see its own log",
}
_TLS = "is TLS on at both ends (etcds://), and are coordinator.store_ca_file, store_cert_file and store_key_file right?"
_LATER = ("too many requests",)
_ANSWERS = {
    _Code.INVALID_ARGUMENT,
    _Code.NOT_FOUND,
    _Code.PERMISSION_DENIED,
    _Code.UNAUTHENTICATED,
    _Code.FAILED_PRECONDITION,
    _Code.RESOURCE_EXHAUSTED,
    _Code.OUT_OF_RANGE,
    _Code.UNIMPLEMENTED,
    _Code.DATA_LOSS,
}


def translated(error: grpc.RpcError, member: str) -> StoreError:
    """EtcdRefused if etcd answered no; otherwise it is unknown whether the request took effect."""
    code, details = error.code(), error.details() or ""
    if code in _ANSWERS and not any(word in details for word in _LATER):
        hint = next((hint for word, hint in _REFUSED.items() if word in details), "")
        return EtcdRefused(f"etcd at {member}: {details}" + (f" ({hint})" if hint else ""))
    hint = f" ({_TLS})" if any(word in details.lower() for word in ("ssl", "tls", "certificate")) else ""
    return EtcdUnavailable(f"etcd at {member} does not answer: {code.name.lower()}, {details}{hint}")


def is_stale_token(error: grpc.RpcError) -> bool:
    """Whether the request was refused only because our token has expired: nothing was changed."""
    details = error.details() or ""
    return "invalid auth token" in details or "revision of auth store is old" in details
