"""Regular expressions of strangers: those that could hold up the coordinator are refused."""

from __future__ import annotations

import pytest

from phalanx.api.patterns import check_pattern
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
    ],
)
def test_plain_patterns_are_taken(pattern: str):
    check_pattern("patterns", pattern)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(a+)+$", "repeats a group"),
        ("(a|a)*b", "repeats a group"),
        ("(ab){5}", "repeats a group"),
        (".*.*.*x", "too many repeats"),
        ("a?" * 20, "too many repeats"),
        ("(a|a)" * 20, "too many repeats"),
        (r"(a)\1", "refers back"),
        ("(?=a)b", "special kind"),
        ("(?P<x>a)", "special kind"),
        ("(", "not a regular expression"),
        ("[", "not a regular expression"),
        ("x" * 600, "bytes are too many"),
    ],
)
def test_patterns_that_could_take_for_ever_are_refused(pattern: str, why: str):
    with pytest.raises(BadRequest, match=why):
        check_pattern("patterns", pattern)
