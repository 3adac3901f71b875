"""What results say beside their values."""

from __future__ import annotations

import json

import pytest

from phalanx.core.model.dispatch import CONTEXT_MAX, CONTEXT_NAME_MAX
from phalanx.core.model.task_results import NAMES_BYTES_MAX, LoadedNames, loaded_in, shortened, taken_apart


@pytest.mark.parametrize(
    "result", ["", "7", "{", "[1]", '{"result": 1}', '{"children": {}}', '{"result": 1, "children": []}']
)
def test_what_is_no_answer_for_several(result: str):
    assert taken_apart(result) is None


def test_an_answer_for_several():
    assert taken_apart('{"children": {"a": [1, 2], "b": null}, "result": {"x": 1}}') == (
        '{"x":1}',
        {"a": "[1,2]", "b": "null"},
    )


def test_names_that_cannot_be_are_left_out():
    long = "x" * (CONTEXT_NAME_MAX + 1)
    found = loaded_in(json.dumps({"cached": ["Org/M", "", long], "evicted": [f"m{at}" for at in range(100)]}))
    assert found == LoadedNames(("org/m",), tuple(f"m{at}" for at in range(CONTEXT_MAX)))


@pytest.mark.parametrize("result", ["", "7", '{"loss": 1}', '{"cached": 7}', '{"cached"'])
def test_most_results_say_nothing(result: str):
    assert loaded_in(result) is None


def test_what_travels_beside_a_result_is_bounded():
    names = tuple(f"{at:0500}" for at in range(20))
    assert shortened(None) is None
    assert shortened(LoadedNames(("a",), ("b",))) == LoadedNames(("a",), ("b",))
    found = shortened(LoadedNames(names, names[:2]))
    assert found == LoadedNames(names[:6], names[:2])
    assert sum(map(len, found.cached + found.evicted)) <= NAMES_BYTES_MAX
