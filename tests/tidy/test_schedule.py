"""The order of the tests: what it names is there, and what shares processes stays together."""

from __future__ import annotations

from tests.support.schedule import LONGEST_FIRST, ONE_BY_ONE, TOGETHER, rank, scope
from tests.tidy.source import ROOT


def test_the_order_names_files_and_folders_that_are_there():
    named = (*LONGEST_FIRST, *ONE_BY_ONE, *TOGETHER)
    assert [
        begin for begin in named if not (ROOT / begin).exists() and not list(ROOT.glob(f"{begin}*"))
    ] == []


def test_the_longest_begin_first_and_short_ones_fill_the_end():
    longest, other, unit = (
        "tests/simulation/test_seeds.py::a",
        "tests/e2e/test_logs.py::a",
        "tests/unit/test_x.py::a",
    )
    assert rank(longest) < rank(other) < rank(unit)


def test_files_that_share_names_of_hosts_stay_together():
    assert scope("tests/e2e/test_overlay.py::a") == scope("tests/e2e/test_overlay_x.py::a")
    assert scope("tests/e2e/test_logs.py::a") != scope("tests/e2e/test_tls.py::a")


def test_tests_of_one_end_to_end_file_stay_together_and_seeds_do_not():
    assert scope("tests/e2e/test_logs.py::a") == scope("tests/e2e/test_logs.py::b")
    assert scope("tests/simulation/test_seeds.py::a") != scope("tests/simulation/test_seeds.py::b")
