"""What a runner may say of an end: within limits, whatever it is."""

from __future__ import annotations

import pytest

from phalanx.core.model.orders import RESULT_BYTES_MAX, Ended, Exit, Why
from phalanx.link import wire

KEY = ("0" * 26, 0, 1)


def wrong_of(exit: Exit) -> str:
    return wire.why_wrong(wire.Reports(1, [Ended(KEY, exit)], 1))


@pytest.mark.parametrize(
    ("exit", "field"),
    [
        (Exit(Why.NONE, 0, result="1" * (RESULT_BYTES_MAX + 1)), "exit.result"),
        (Exit(Why.NONE, 0, result="é" * (RESULT_BYTES_MAX // 2 + 1)), "exit.result"),
        (Exit(Why.NONE, 0, result_bytes=65_537, result_sha256="a" * 64), "exit.result_bytes"),
        (Exit(Why.NONE, 0, result_bytes=5000), "exit.result_sha256"),
        (Exit(Why.NONE, 0, result_bytes=5000, result_sha256="z" * 64), "exit.result_sha256"),
        (Exit(Why.EXITED, 1, message="x" * (wire.TEXT_MAX + 1)), "exit:"),
        (Exit(Why.EXITED, 1, stderr_tail="x" * (wire.TEXT_MAX + 1)), "exit:"),
    ],
)
def test_too_much_is_refused_and_the_field_named(exit: Exit, field: str):
    assert wrong_of(exit).startswith(field)


def test_as_much_as_may_be_is_taken():
    longest = "x" * wire.TEXT_MAX
    assert wrong_of(Exit(Why.EXITED, 1, 1.0, 2.0, longest, longest, result="1" * RESULT_BYTES_MAX)) == ""
