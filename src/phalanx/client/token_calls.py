"""Calls about tokens and the audit log, as values."""

from __future__ import annotations

import msgspec

from phalanx.api.schema.cluster import AuditLine, NewToken, RotateRequest, TokenRequest, TokenView
from phalanx.client.calls import Call, path_of


def tokens() -> Call[list[TokenView]]:
    return Call(method="GET", path="/v1/tokens", answer=list[TokenView], repeatable=True)


def create_token(request: TokenRequest) -> Call[NewToken]:
    return Call(method="POST", path="/v1/tokens", answer=NewToken, body=msgspec.json.encode(request))


def revoke_token(id: str) -> Call[TokenView]:
    return Call(method="POST", path=path_of("tokens", id, "revoke"), answer=TokenView)


def rotate_token(id: str, overlap: float | str | None) -> Call[NewToken]:
    body = msgspec.json.encode(RotateRequest(overlap))
    return Call(method="POST", path=path_of("tokens", id, "rotate"), answer=NewToken, body=body)


def audit(tail: int) -> Call[list[AuditLine]]:
    query = {"tail": str(tail)}
    return Call(method="GET", path="/v1/audit", answer=list[AuditLine], query=query, repeatable=True)
