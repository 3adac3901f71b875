"""Patterns of users are refused unless RE2 can match them in a bounded time."""

from __future__ import annotations

import pytest

from phalanx.api.schema.fields import PATTERNS_MAX, PatternBudget
from phalanx.errors import BadRequest


@pytest.mark.parametrize(
    "pattern",
    [
        "exited with code (3|42)",
        r"^ended by signal \d+$",
        "maintenance.*reboot.*",
        "[^a]?b",
        r"a\*b\(c",
        "[]*+]x",
        "(?:ab)c",
        "a{2,3}",
        "(a+)+$",
        ".*.*.*x",
        "a+a+(?:a|a)(?:a|a)x",
    ],
)
def test_patterns_that_re2_reads_are_taken(pattern: str):
    PatternBudget().take("patterns", pattern)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("a++", "bad repetition operator"),
        (r"(a)\1", "invalid escape sequence"),
        ("(?=a)b", "invalid perl operator"),
        (r"end\Z", "invalid escape sequence"),
        ("(", "missing"),
        ("[", "missing"),
        ("x" * 600, "bytes are too many"),
        ("(a|b){999}", "at most 500"),
    ],
)
def test_patterns_that_it_cannot_read_are_refused_by_field_and_value(pattern: str, why: str):
    with pytest.raises(BadRequest, match=why) as refused:
        PatternBudget().take("restart.rules[0].patterns", pattern)
    assert "restart.rules[0].patterns" in str(refused.value)


def test_all_patterns_of_a_job_are_counted_together():
    budget = PatternBudget()
    for _ in range(PATTERNS_MAX):
        budget.take("patterns", "a")
    with pytest.raises(BadRequest, match="at most 100 patterns in all rules"):
        budget.take("patterns", "a")


def test_all_patterns_of_a_job_have_one_size():
    budget = PatternBudget()
    budget.take("patterns", "a{300}")
    with pytest.raises(BadRequest, match="give at most 500"):
        budget.take("patterns", "b{300}")
