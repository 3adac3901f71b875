"""Answers for several tasks, taken apart on the runner."""

from __future__ import annotations

import json

import pytest

from phalanx.core.model.orders import RESULT_BYTES_MAX, RESULT_FILE_BYTES_MAX, Start
from phalanx.core.model.resources import Grant
from phalanx.core.model.task_results import PartResult
from phalanx.core.runner.attempts import ProcessEnd, exit_of
from phalanx.link.exits import wrong_exit
from phalanx.runner.merging import (
    TOGETHER_BYTES_MAX,
    large_parts,
    memo_with,
    tasks_in,
    tasks_of,
    with_own_result,
)

ONE = "01j00000000000000000000001"
OTHER = "01j00000000000000000000002"


def an_end(result: object, code: int = 0) -> ProcessEnd:
    return ProcessEnd(code, None, False, None, 1.0, 2.0, result=json.dumps(result))


@pytest.mark.parametrize(
    ("merged", "tasks"), [("", 0), ("[]", 1), ('[{"task_id": "a"}, {"task_id": "b"}]', 3)]
)
def test_for_how_many_a_program_may_answer(merged: str, tasks: int):
    assert tasks_of(Start(("j", 0, 1), 0, Grant(1, 0), None, 0, merged=merged)) == tasks


@pytest.mark.parametrize("limits", ["", '{"cpus":[1]}'])
def test_a_later_runner_learns_it_from_the_memo(limits: str):
    memo = memo_with(limits, 3)
    assert tasks_in(memo) == 3
    assert json.loads(memo) == {**json.loads(limits or "{}"), "tasks": 3}
    assert memo_with(limits, 0) == limits
    assert tasks_in(limits) == tasks_in("{") == 0


def test_each_result_is_its_own():
    end = with_own_result(an_end({"result": {"x": 1}, "children": {ONE: "y", OTHER: None}}))
    assert (end.result, end.is_own) == ('{"x":1}', True)
    assert end.parts == (PartResult(ONE, '"y"'), PartResult(OTHER, "null"))


def test_one_that_is_too_large_is_left_out_and_ones_own_is_an_error():
    large = "x" * RESULT_FILE_BYTES_MAX
    end = with_own_result(an_end({"result": 1, "children": {ONE: large, OTHER: 2}}))
    assert (end.result, end.result_error, end.parts) == ("1", "", (PartResult(OTHER, "2"),))
    own = with_own_result(an_end({"result": large, "children": {OTHER: 2}}))
    assert (own.result, own.parts) == ("", ())
    assert (
        own.result_error
        == f"its result has {len(large) + 2} bytes without white space, at most 65536 are kept"
    )
    other = with_own_result(an_end(large))
    assert other.result_error == own.result_error


def test_who_failed_answers_for_nobody():
    end = with_own_result(an_end({"result": 1, "children": {ONE: 2}}, code=1))
    assert (end.result, end.parts) == ("1", ())


def test_large_results_and_too_many_small_ones_go_to_the_place_for_files():
    small = [PartResult(str(at), "x" * RESULT_BYTES_MAX) for at in range(20)]
    large = PartResult("large", "x" * (RESULT_BYTES_MAX + 1))
    fit = TOGETHER_BYTES_MAX // RESULT_BYTES_MAX
    assert large_parts((large, *small)) == {"large", *(str(at) for at in range(fit, 20))}


def test_a_program_cannot_keep_its_node_from_reporting_by_the_names_that_it_writes():
    names = ["x" * 600, "../../etc/passwd", "result", "", OTHER.upper(), OTHER]
    end = with_own_result(an_end({"result": 1, "children": dict.fromkeys(names, "y")}))
    assert end.parts == (PartResult(OTHER, '"y"'),)
    assert wrong_exit(exit_of(end, None, 1.0)) == ""


def test_a_large_result_that_is_no_answer_for_several_is_ones_own_as_a_small_one_is():
    for result in ("x" * 5000, "x"):
        end = with_own_result(an_end(result))
        assert (end.result, end.is_own, end.parts) == (json.dumps(result), True, ())
