"""Single fields: parts of cores, and patterns of users, which RE2 must be able to match in a bounded time."""

from __future__ import annotations

import pytest

from phalanx.api.schema.dependencies import read_after
from phalanx.api.schema.fields import PATTERNS_MAX, PatternBudget, read_cores
from phalanx.core.model.resources import Cores
from phalanx.errors import BadRequest, Unprocessable


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


@pytest.mark.parametrize(
    ("value", "cores"), [(2, "2"), (2.0, "2"), (0.5, "0.5"), (1e-3, "0.001"), (65_536, "65536"), (0, "0")]
)
def test_cores_are_whole_or_in_thousandths(value: Cores, cores: str):
    assert repr(read_cores("cores", value, 65_536)) == cores


@pytest.mark.parametrize("value", [-1, -0.001, 65_536.001, 1e300, float("nan"), float("inf"), 10**400])
def test_cores_out_of_range_are_refused(value: Cores):
    with pytest.raises(Unprocessable, match=r"^groups\[0\].cores: .* is out of range"):
        read_cores("groups[0].cores", value, 65_536)


@pytest.mark.parametrize("value", [0.0001, 0.5005, 1 / 3, 5e-324, 65_535.9999])
def test_cores_finer_than_a_thousandth_are_refused(value: float):
    with pytest.raises(Unprocessable, match=r"^cores: .* has more than three decimals"):
        read_cores("cores", value, 65_536)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("afterok:17", "afterok of Slurm is 17 here"),
        ("17:afterany", "afterany of Slurm is 17:any here"),
        ("afternotok:", "afternotok of Slurm is JOB:failed here"),
        ("17:fit:soon", ""),
    ],
)
def test_a_dependency_of_slurm_is_told_as_it_is_written_here(text: str, hint: str):
    with pytest.raises(BadRequest, match="is not JOB") as told:
        read_after([text])
    assert told.value.hint == hint
