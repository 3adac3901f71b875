"""A task that ends well and gives a result that is none has failed; one that failed anyway keeps its own reason.

A program that found nothing to run says so by its result.
"""

from __future__ import annotations

from phalanx.core.model.orders import Why
from phalanx.core.runner.attempts import ProcessEnd, exit_of


def test_a_bad_result_fails_only_who_ended_well():
    well = ProcessEnd(0, None, False, None, 1.0, 2.0, result_error="its result is not JSON")
    assert exit_of(well, None, None).why == Why.BAD_RESULT
    assert exit_of(well, None, None).message == "its result is not JSON"
    failed = ProcessEnd(3, None, False, None, 1.0, 2.0, result_error="its result is not JSON")
    assert exit_of(failed, None, None).why == Why.EXITED
    assert exit_of(well, Why.CANCELLED, None).why == Why.CANCELLED


def test_a_result_goes_with_any_end():
    for code, why in ((0, Why.NONE), (3, Why.EXITED)):
        exit = exit_of(ProcessEnd(code, None, False, None, 1.0, 2.0, result="{}"), None, None)
        assert (exit.why, exit.result) == (why, "{}")


def test_a_program_that_found_nothing_to_run_was_refused_and_says_why():
    said = '{"phalanx_cannot_run":"cannot run a:b: no module"}'
    exit = exit_of(ProcessEnd(127, None, False, None, 1.0, 2.0, result=said), None, None)
    assert (exit.why, exit.code, exit.message, exit.result) == (
        Why.REFUSED,
        127,
        "cannot run a:b: no module",
        "",
    )
    for code, result in ((127, '{"other":1}'), (127, ""), (127, "[]"), (1, said)):
        exit = exit_of(ProcessEnd(code, None, False, None, 1.0, 2.0, result=result), None, None)
        assert (exit.why, exit.message, exit.result) == (Why.EXITED, f"exited with code {code}", result)
