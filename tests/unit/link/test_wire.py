"""What a runner may say of an end: within limits, whatever it is."""

from __future__ import annotations

import pytest

from phalanx.core.model.orders import RESULT_BYTES_MAX, Ended, Exit, Why
from phalanx.core.model.task_results import LoadedNames, PartResult
from phalanx.link import exits, wire

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
        (Exit(Why.NONE, 0, parts=(PartResult("j", "1" * (RESULT_BYTES_MAX + 1)),)), "exit.parts.result"),
        (Exit(Why.NONE, 0, parts=(PartResult("j", "", 65_537, "a" * 64),)), "exit.parts.result_bytes"),
        (Exit(Why.NONE, 0, parts=(PartResult("j" * 513),)), "exit.parts"),
        (Exit(Why.NONE, 0, parts=(PartResult("j"),) * 65), "exit.parts: 65"),
        (Exit(Why.NONE, 0, loaded=LoadedNames(("m" * 2000,), ("m" * 2097,))), "exit.loaded"),
        (Exit(Why.NONE, 0, loaded=LoadedNames(("",) * 4097, ())), "exit.loaded"),
        (Exit(Why.EXITED, 1, message="x" * (exits.TEXT_MAX + 1)), "exit:"),
        (Exit(Why.EXITED, 1, stderr_tail="x" * (exits.TEXT_MAX + 1)), "exit:"),
    ],
)
def test_too_much_is_refused_and_the_field_named(exit: Exit, field: str):
    assert wrong_of(exit).startswith(field)


def test_as_much_as_may_be_is_taken():
    longest = "x" * exits.TEXT_MAX
    assert wrong_of(Exit(Why.EXITED, 1, 1.0, 2.0, longest, longest, result="1" * RESULT_BYTES_MAX)) == ""
    parts = (PartResult("j", "1" * RESULT_BYTES_MAX), *(PartResult("j", "", 65_536, "a" * 64),) * 63)
    loaded = LoadedNames(("m" * 2000,), ("m" * 2096,))
    assert wrong_of(Exit(Why.NONE, 0, 1.0, 2.0, is_own=True, parts=parts, loaded=loaded)) == ""
