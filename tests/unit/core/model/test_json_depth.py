"""JSON that is nested too deep: found without reading it, and its field named."""

from __future__ import annotations

import json

import pytest

from phalanx.core.model.json_depth import JSON_DEPTH_MAX, too_deep_at


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def test_the_limit_is_exact():
    assert too_deep_at(nested(JSON_DEPTH_MAX)) is None
    assert too_deep_at(nested(JSON_DEPTH_MAX + 1)) is not None
    assert too_deep_at(f"[{nested(60)},{nested(60)}]") is None


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"a": [1, {"b": {"c": [[]]}}]}', "a[1].b.c"),
        ('{"a": {"x": 1}, "b,[": [[], 2, [[[[]]]]]}', "b,[[2][0][0]"),
        ('[{"\\"]": 1}, [[[[]]]]]', "[1][0][0][0]"),
    ],
)
def test_the_path_is_named(text: str, where: str):
    json.loads(text)
    assert too_deep_at(text, most=4) == where


@pytest.mark.parametrize(
    "text", ['"[[[[[["', '["[[[[", "\\"[[[", {"[[[[":"{{{"}]', "]]]]" + "[]" * 9, "", '"[']
)
def test_brackets_in_texts_do_not_count(text: str):
    assert too_deep_at(text, most=2) is None


def test_a_long_path_is_cut():
    where = too_deep_at('{"key":' * 101 + "1" + "}" * 101)
    assert where is not None
    assert where.startswith("key.key") and where.endswith("…") and len(where) <= 81
