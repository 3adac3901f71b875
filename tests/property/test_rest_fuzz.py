"""The REST app under whatever comes: never a 500, and what it answers is what its OpenAPI document says."""

from __future__ import annotations

import asyncio
import json

import pytest
import schemathesis
from hypothesis import given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from phalanx.api.schema.submission import SubmitRequest
from phalanx.api.server.routes.table import ROUTES
from phalanx.core.model.job import Job
from phalanx.errors import NotFound
from tests.support.fake_commands import FakeCommands
from tests.support.rest_app import TOKEN, RawResponse, a_rest_app, ask_raw
from tests.support.route_cases import a_document, labels, try_route


class AnyIdCluster(FakeCommands):
    """Every id that begins with a digit is that of some job, so that fuzzing comes further than 404."""

    def _find(self, id: str) -> Job:
        if not self.held or not id[0].isdigit():
            raise NotFound(f"no job {id!r}")
        return next(reversed(self.held.values()))

    def _reason(self, name: str) -> str:
        return super()._reason("n1" if name[0].isdigit() else name)


# Each request has a loop of its own, with which a place that rests for a moment would be lost.
HOUSE = a_rest_app(AnyIdCluster(endless=False), settle_s=0.0, large_rest=0.0)
asyncio.run(HOUSE.cluster.submit(SubmitRequest(["true"]), "ada"))
GOOD = {"Authorization": f"Bearer {TOKEN}", "Host": "localhost"}
DOCUMENT = a_document(app=HOUSE.app)
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    response_headers_conformance,
]


def check(answered: RawResponse) -> None:
    assert answered.status < 500
    if answered.status >= 400:
        assert answered.headers["content-type"] == "application/problem+json"
        told = json.loads(answered.body)
        assert (told["status"], bool(told["detail"])) == (answered.status, True)


@pytest.mark.parametrize("route", labels())
def test_answers_are_as_the_document_says(route: str) -> None:
    def check(case: schemathesis.Case) -> None:
        case.call_and_validate(headers=GOOD, checks=CHECKS)

    try_route(DOCUMENT, route, check)


WORDS = st.sampled_from(
    [
        b"",
        b"GET",
        b"\0",
        b"\xff\xfe",
        b"{}",
        b"application/json",
        b"Bearer",
        b"-1",
        b"9" * 40,
        b"%00",
        b"..",
        b"\r\n",
    ]
)
BYTES = WORDS | st.binary(max_size=40)
NAMES = st.sampled_from(
    [
        b"host",
        b"origin",
        b"content-type",
        b"content-length",
        b"idempotency-key",
        b"last-event-id",
        b"x",
        b"\xff",
    ]
)
PATHS = st.sampled_from([route.path for route in ROUTES]).flatmap(
    lambda path: st.text(max_size=6).map(lambda id: path.replace("{id}", id))
)
METHODS = st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "\xff"])


@given(
    METHODS,
    PATHS | st.text(max_size=20),
    st.lists(st.tuples(NAMES, BYTES), max_size=3),
    BYTES,
    st.lists(BYTES, min_size=1, max_size=3),
    st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_any_bytes_anywhere(
    method: str,
    path: str,
    headers: list[tuple[bytes, bytes]],
    query: bytes,
    pieces: list[bytes],
    known: bool,
) -> None:
    names = {name for name, _ in headers}
    headers = headers + ([] if b"host" in names else [(b"host", b"localhost")])
    if known:
        headers = [*headers, (b"authorization", f"Bearer {TOKEN}".encode())]
    check(asyncio.run(ask_raw(HOUSE.app, method, path, headers, query, pieces)))


@given(st.binary(max_size=60), st.sampled_from([route for route in ROUTES if route.method == "POST"]))
@settings(max_examples=200, deadline=None)
def test_any_body_of_a_known_user(body: bytes, route) -> None:
    headers = [
        (b"host", b"localhost"),
        (b"content-type", b"application/json"),
        (b"authorization", f"Bearer {TOKEN}".encode()),
    ]
    path = route.path.replace("{id}", "1")
    check(asyncio.run(ask_raw(HOUSE.app, "POST", path, headers, b"", [body])))
