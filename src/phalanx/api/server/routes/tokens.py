"""The routes of tokens and of the audit. A token never has more rights than its creator."""

from __future__ import annotations

from msgspec import structs

from phalanx.api.schema.cluster import (
    JOIN_S,
    JOIN_S_MAX,
    OVERLAP_S,
    OVERLAP_S_MAX,
    USER_S,
    AuditLine,
    NewToken,
    RotateRequest,
    TokenRequest,
    TokenView,
    seconds_of,
)
from phalanx.api.schema.fields import check_name
from phalanx.api.schema.queries import AuditQuery
from phalanx.api.server.auth import Identity, forbidden
from phalanx.api.server.commands import LINES_MAX
from phalanx.api.server.messages import HttpRequest, Response, json_reply
from phalanx.api.server.route import Route, Service
from phalanx.core.model.credential import power
from phalanx.errors import BadRequest, Conflict, Forbidden, NotFound

ELSEWHERE = "`phalanx token list` shows them; tokens from settings are removed there"


async def tokens(service: Service, http_request: HttpRequest) -> Response:
    sees_all = http_request.identity.scope("grant") == "all"
    return json_reply(await service.commands.tokens(None if sees_all else http_request.user))


async def create(service: Service, http_request: HttpRequest) -> Response:
    request: TokenRequest = http_request.document
    made = (
        _join(request, http_request.identity)
        if request.kind == "join"
        else _user(request, http_request.identity)
    )
    is_join = request.kind == "join"
    span_s = seconds_of(
        "expires", request.expires, JOIN_S if is_join else USER_S, JOIN_S_MAX if is_join else None
    )
    new = await service.commands.create_token(made, span_s, http_request.identity)
    http_request.made = [new.record.id]
    return json_reply(new, 201)


async def revoke(service: Service, http_request: HttpRequest) -> Response:
    await _found(service, http_request)
    return json_reply(await service.commands.revoke_token(http_request.id, http_request.identity))


async def rotate(service: Service, http_request: HttpRequest) -> Response:
    request: RotateRequest = http_request.document
    known = await _found(service, http_request)
    if power(known.role) > http_request.identity.power:
        raise _too_much(http_request.identity, known.role)
    if known.kind != "user":
        raise Conflict(
            f"{known.id} is a {known.kind} credential: a node gets a new one with a new join token"
        )
    overlap_s = seconds_of("overlap", request.overlap, OVERLAP_S, OVERLAP_S_MAX) or 0.0
    new = await service.commands.rotate_token(http_request.id, overlap_s, http_request.identity)
    http_request.made = [new.record.id]
    return json_reply(new, 201)


async def audit(service: Service, http_request: HttpRequest) -> Response:
    query: AuditQuery = http_request.query
    return json_reply(service.audit.tail(min(query.tail, LINES_MAX)))


def _join(request: TokenRequest, identity: Identity) -> TokenRequest:
    if identity.scope("grant") != "all":
        refusal = forbidden(identity, "grant", "let nodes join")
        refusal.hint = "the role admin is required"
        raise refusal
    if request.name is not None or request.role is not None:
        raise BadRequest("name and role: a join token has neither, give node, or nothing for any node")
    if request.node is not None:
        check_name("node", request.node)
    return request


def _user(request: TokenRequest, identity: Identity) -> TokenRequest:
    if request.node is not None:
        raise BadRequest("node: only a join token (kind: join) is for a node")
    if request.role is None:
        raise BadRequest("role: give viewer, user, operator or admin")
    name = identity.name if request.name is None else request.name
    check_name("name", name)
    if power(request.role) > identity.power:
        raise _too_much(identity, request.role)
    if identity.scope("grant") != "all" and name != identity.name:
        raise forbidden(identity, "grant", f"make tokens for {name}, only for {identity.name}")
    return structs.replace(request, name=name)


async def _found(service: Service, http_request: HttpRequest) -> TokenView:
    """The token in the path, if it may be touched. Others' tokens are not even said to exist."""
    found = await service.commands.token(http_request.id)
    if found is None or not _is_theirs(http_request.identity, found):
        raise NotFound(f"no token {http_request.id!r}", reason="TokenNotFound", hint=ELSEWHERE)
    return found


def _is_theirs(identity: Identity, token: TokenView) -> bool:
    return identity.scope("grant") == "all" or (token.kind == "user" and token.name == identity.name)


def _too_much(identity: Identity, role: str) -> Forbidden:
    return Forbidden(
        f"{identity.name} has the role {identity.role} and cannot make a token of role {role}",
        reason="RoleForbids",
        hint="the role admin is required"
        if role == "admin"
        else f"the role {role} or a higher one is required",
        extra={"role": identity.role, "permission": "grant"},
    )


ROUTES = (
    Route(
        method="GET",
        path="/v1/tokens",
        permission="grant",
        handler=tokens,
        summary="List tokens, without their values: your own, or all of them as admin.",
        answer=list[TokenView],
    ),
    Route(
        method="POST",
        path="/v1/tokens",
        permission="grant",
        handler=create,
        summary="Create a token with at most your own role. Its value is in this answer only.",
        answer=NewToken,
        status=201,
        body=TokenRequest,
    ),
    Route(
        method="POST",
        path="/v1/tokens/{id}/revoke",
        permission="grant",
        handler=revoke,
        summary="Revoke a token, and those created with it for the same name. Its streams end within 30 s.",
        answer=TokenView,
    ),
    Route(
        method="POST",
        path="/v1/tokens/{id}/rotate",
        permission="grant",
        handler=rotate,
        summary="Replace a token by a new one; the old one stays valid for a while.",
        answer=NewToken,
        status=201,
        body=RotateRequest,
    ),
    Route(
        method="GET",
        path="/v1/audit",
        permission="audit",
        handler=audit,
        summary="The newest lines of this coordinator's audit log.",
        answer=list[AuditLine],
        query=AuditQuery,
    ),
)
