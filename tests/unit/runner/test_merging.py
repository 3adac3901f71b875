"""Answers for several tasks, taken apart on the runner."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from phalanx.core.model.orders import RESULT_BYTES_MAX, RESULT_FILE_BYTES_MAX, Start
from phalanx.core.model.resources import Grant
from phalanx.core.model.task_results import PartResult
from phalanx.core.runner.attempts import ProcessEnd, exit_of
from phalanx.link.exits import wrong_exit
from phalanx.runner.log_files import RESULT, log_path
from phalanx.runner.merging import (
    TOGETHER_BYTES_MAX,
    large_parts,
    memo_with,
    read_result,
    tasks_in,
    tasks_of,
    with_result,
)

ONE = "01j00000000000000000000001"
OTHER = "01j00000000000000000000002"


Ends = Callable[..., ProcessEnd]


@pytest.fixture
def end_with(tmp_path: Path) -> Ends:
    """The end of a program that may answer for several tasks and has written this; bytes are taken as they are."""
    path = log_path(tmp_path, ONE, 0, 1, RESULT)
    Path(path).parent.mkdir()

    def end(result: object, code: int = 0) -> ProcessEnd:
        Path(path).write_bytes(result if isinstance(result, bytes) else json.dumps(result).encode())
        return with_result(ProcessEnd(code, None, False, None, 1.0, 2.0), read_result(path, 64))

    return end


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


def test_each_result_is_its_own(end_with: Ends):
    end = end_with({"result": {"x": 1}, "children": {ONE: "y", OTHER: None}})
    assert (end.result, end.is_own) == ('{"x":1}', True)
    assert end.parts == (PartResult(ONE, '"y"'), PartResult(OTHER, "null"))


def test_one_that_is_too_large_is_left_out_and_ones_own_is_an_error(end_with: Ends):
    large = "x" * RESULT_FILE_BYTES_MAX
    end = end_with({"result": 1, "children": {ONE: large, OTHER: 2}})
    assert (end.result, end.result_error, end.parts) == ("1", "", (PartResult(OTHER, "2"),))
    own = end_with({"result": large, "children": {OTHER: 2}})
    assert (own.result, own.parts) == ("", ())
    assert (
        own.result_error
        == f"its result has {len(large) + 2} bytes without white space, at most 65536 are kept"
    )
    other = end_with(large)
    assert other.result_error == own.result_error


def test_who_failed_answers_for_nobody(end_with: Ends):
    end = end_with({"result": 1, "children": {ONE: 2}}, code=1)
    assert (end.result, end.parts) == ("1", ())


def test_large_results_and_too_many_small_ones_go_to_the_place_for_files():
    small = [PartResult(str(at), "x" * RESULT_BYTES_MAX) for at in range(20)]
    large = PartResult("large", "x" * (RESULT_BYTES_MAX + 1))
    fit = TOGETHER_BYTES_MAX // RESULT_BYTES_MAX
    assert large_parts((large, *small)) == {"large", *(str(at) for at in range(fit, 20))}


def test_a_program_cannot_keep_its_node_from_reporting_by_the_names_that_it_writes(end_with: Ends):
    names = ["x" * 600, "../../etc/passwd", "result", "", OTHER.upper(), OTHER]
    end = end_with({"result": 1, "children": dict.fromkeys(names, "y")})
    assert end.parts == (PartResult(OTHER, '"y"'),)
    assert wrong_exit(exit_of(end, None, 1.0)) == ""


def test_a_large_result_that_is_no_answer_for_several_is_ones_own_as_a_small_one_is(end_with: Ends):
    for result in ("x" * 5000, "x"):
        end = end_with(result)
        assert (end.result, end.is_own, end.parts) == (json.dumps(result), True, ())


def test_one_that_is_nested_too_deep_is_left_out_like_one_that_is_too_large(end_with: Ends):
    deep, most = b"[" * 101 + b"]" * 101, b"[" * 100 + b"]" * 100
    end = end_with(b'{"result":1,"children":{"%s":%s,"%s":%s}}' % (ONE.encode(), deep, OTHER.encode(), most))
    assert (end.result, end.result_error) == ("1", "")
    assert end.parts == (PartResult(OTHER, most.decode()),)
    own = end_with(b'{"result":%s,"children":{"%s":2}}' % (deep, OTHER.encode()))
    assert (own.result, own.parts) == ("", ())
    assert "nested more than 100 levels deep" in own.result_error


@pytest.mark.parametrize(
    "written",
    [
        b'{"result":1,"children":{"%s":NaN}}',
        b'{"result":1,"children":{"%s":"\xff"}}',
        b'{"result":1,"children":{"%s":1e999}}',
        b'{"result":1,"children":{"%s":2}',
        b'{"result":' + b"[" * 9000 + b',"children":{"%s":2}}',
    ],
)
def test_what_is_no_json_in_any_part_is_no_answer_for_anybody(end_with: Ends, written: bytes):
    end = end_with(written % OTHER.encode())
    assert (end.result, end.parts, end.is_own) == ("", (), False)
    assert end.result_error.startswith("its result is n")


def test_results_are_kept_as_their_program_wrote_them_without_white_space(end_with: Ends):
    end = end_with(
        b'{"children": {"%s": [1.50, "\\u00e9"]}, "more": 1, "result": {"a":  1e2}}' % OTHER.encode()
    )
    assert end.result == '{"a":1e2}'
    assert end.parts == (PartResult(OTHER, '[1.50,"\\u00e9"]'),)
