"""Patterns are matched in linear time, as one set for a job; what cannot be compiled never matches."""

from __future__ import annotations

from time import process_time

import pytest

from phalanx.core.cluster.events import JobSubmitted
from phalanx.core.explain.story import sentence
from phalanx.core.model.job import Restart, Rule
from phalanx.core.model.patterns import PROGRAM_MAX, Unreadable, matching, program_size, unreadable
from tests.support.builders import a_job


def test_the_positions_of_what_matches():
    assert matching(("code 3", "signal", "code [0-9]+$"), "exited with code 3") == {0, 2}
    assert matching((), "exited with code 3") == frozenset()


def test_only_the_beginning_of_a_message_is_looked_at():
    assert not matching(("x",), "a" * 500 + "x")


def test_a_text_that_is_no_unicode_is_matched_as_well():
    assert matching(("b",), "\ud800b") == {0}


def test_what_cannot_be_compiled_never_matches_and_is_named():
    patterns = ("a++", "a", r"(a)\1")
    assert matching(patterns, "aaa") == {1}
    assert unreadable(patterns) == ("a++", r"(a)\1")


def test_what_is_too_much_together_never_matches_and_is_named():
    patterns = ("a", "b{300}", "c{300}", "d")
    assert matching(patterns, "b" * 300 + "c" * 100 + "ad") == {0, 1, 3}
    assert not matching(patterns, "c" * 300)
    assert unreadable(patterns) == ("c{300}",)


def test_the_story_tells_which_patterns_of_a_stored_job_never_match():
    rules = (Rule("restart", patterns=("code 3", "a++")), Rule("fail"))
    old = a_job(restart=Restart(whole=True, limit=1, rules=rules))
    assert "RE2 cannot compile never match: 'a++'" in sentence(JobSubmitted(job=old, at=1.0))
    assert "RE2" not in sentence(JobSubmitted(job=a_job(), at=1.0))


def test_the_reason_is_re2s_own():
    with pytest.raises(Unreadable, match="bad repetition operator"):
        program_size("a++")


def test_the_pattern_that_took_seconds_takes_microseconds():
    began = process_time()
    for number in range(20):
        matching((f"a+a+(?:a|a)(?:a|a)x{number}",), "no program '" + "a" * 480)
    assert process_time() - began < 0.5  # Python's matcher: 20 times 0.5 to 1.1 s


def test_the_worst_set_that_is_taken_costs_milliseconds():
    many = PROGRAM_MAX // program_size("(a|b)*a(a|b){41}00")
    worst = tuple(f"(a|b)*a(a|b){{41}}{number}" for number in range(many))
    text = "".join("ab"[(each * each) % 7 % 2] for each in range(500))
    assert not unreadable(worst)
    began = process_time()
    matching(worst, text)
    assert process_time() - began < 0.1
