"""Errors over the wire: what the server raised is raised in the client."""

from __future__ import annotations

import pytest

from phalanx import errors
from phalanx.api.schema.documents import (
    FailedTarget,
    read_problem,
    retry_after_s,
    spell_problem,
)
from phalanx.errors import BadRequest, NotFound, PhalanxError, TooMany, Unavailable

KINDS = [each for each in PhalanxError.__subclasses__() if each.__module__ == errors.__name__]


@pytest.mark.parametrize("kind", KINDS)
def test_every_error_comes_back_as_itself(kind: type[PhalanxError]):
    sent = kind("it is so", reason="Because", hint="do this")
    back = read_problem(sent.status, spell_problem(sent, "/v1/jobs"))
    assert type(back) is kind
    assert (back.detail, back.reason, back.hint) == ("it is so", "Because", "do this")


def test_failed_targets_come_back_as_values():
    failed = [FailedTarget("n1:x", "Misconfigured", "no")]
    back = read_problem(400, spell_problem(BadRequest("all bad", extra={"failed_targets": failed})))
    assert back.extra["failed_targets"] == failed


def test_extra_members_cannot_take_the_place_of_the_standard_ones():
    back = read_problem(400, spell_problem(BadRequest("yes", extra={"detail": "no", "more": 1})))
    assert (back.detail, back.extra) == ("yes", {"more": 1})


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"title": 1}', b"\xff", b'{"status": "x"}'])
@pytest.mark.parametrize(("status", "kind"), [(404, NotFound), (503, Unavailable), (502, Unavailable)])
def test_an_answer_of_somebody_else_is_read_by_its_status(body: bytes, status: int, kind: type[PhalanxError]):
    back = read_problem(status, body)
    assert type(back) is kind
    assert str(status) in back.detail


def test_who_is_told_to_come_again_is_told_when():
    assert retry_after_s(TooMany("full", retry_after_s=2.1)) == 3
    assert retry_after_s(Unavailable("down")) == 1
    assert retry_after_s(BadRequest("no")) is None
    assert read_problem(429, b"", "7").retry_after_s == 7.0
    assert read_problem(429, b"", "Wed, 21 Oct 2026 07:28:00 GMT").retry_after_s is None
