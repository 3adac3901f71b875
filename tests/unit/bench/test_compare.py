"""Two commits against each other: what counts as worse, and that each tree's own code is measured."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.compare import ROOT, Row, Side, measured, report
from bench.figures import Figure
from bench.part import _by_name


@pytest.mark.parametrize(
    ("better", "before", "after", "is_worse"),
    [
        ("more", 100.0, 91.0, False),
        ("more", 100.0, 89.0, True),
        ("less", 1.0, 1.09, False),
        ("less", 1.0, 1.11, True),
    ],
)
def test_a_tenth_is_the_limit(better: str, before: float, after: float, is_worse: bool) -> None:
    assert Row("part", "figure", "", better, ([before], [after])).is_worse is is_worse


def test_medians_are_compared_and_not_outliers() -> None:
    assert Row("part", "figure", "ms", "less", ([1.0, 1.0, 9.0], [1.0, 1.05, 90.0])).ratio == 1.05


def test_the_exit_code_says_worse_or_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    sides = [Side("old", Path()), Side("new", Path())]
    good, bad = (Row("p", name, "ms", "less", ([1.0], [after])) for name, after in (("a", 1.0), ("b", 2.0)))
    assert [report(sides, rows) for rows in ([good], [good, bad])] == [0, 1]
    assert "WORSE" in capsys.readouterr().out
    sides[0].failed["q"] = "no etcd here"
    assert report(sides, [good]) == 2
    assert "not measured: q of old: no etcd here" in capsys.readouterr().out


def test_figures_of_others_are_left_out_and_names_are_told_apart() -> None:
    figures = [
        Figure("tasks/s", "/s", [5.0]), Figure("HyperQueue tasks/s", "/s", [4.0]), Figure("killed", "s", [1.0]),
        Figure("the same: slowest", "s", [2.0]), Figure("lost", "s", [3.0]), Figure("the same: slowest", "s", [4.0]),
    ]  # fmt: skip
    told = _by_name(figures)
    assert list(told) == ["tasks/s", "killed", "killed: the same: slowest", "lost", "lost: the same: slowest"]
    assert [each["better"] for each in told.values()] == ["more", "less", "less", "less", "less"]


def a_tree(folder: Path, bench: str) -> Path:
    """A tree whose phalanx and whose benchmarks print their names."""
    for name in ("src/phalanx", "bench"):
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text("")
    (folder / "bench" / "placement.py").write_text(bench)
    return folder


def test_a_part_that_our_benchmarks_cannot_measure_is_measured_by_the_trees_own(tmp_path: Path) -> None:
    own = """
from types import SimpleNamespace
CELLS = []
a_cluster = lambda nodes: None
fill_with_tasks = lambda table, tasks: SimpleNamespace(members=6, cpu_s=2.0, decisions=[(0.1, 0.1)])
"""
    side = Side("old", a_tree(tmp_path, own))  # ours would import what this phalanx does not have
    [told] = measured([side], "placement", ["--quick"])
    assert told is not None and told["single tasks, members"]["values"] == [3.0]
    assert side.own == {"placement"}


def test_a_phalanx_from_elsewhere_is_not_measured(tmp_path: Path) -> None:
    words = [sys.executable, "-P", str(ROOT / "bench" / "part.py"), "placement", "--source", str(tmp_path)]
    path = os.pathsep.join((str(ROOT / "src"), str(ROOT)))
    found = subprocess.run(
        words, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert found.returncode == 1 and "instead of" in found.stderr


def test_what_is_told_is_one_line_of_json(tmp_path: Path) -> None:
    own = """
from types import SimpleNamespace
CELLS = [(1, 1, "rack")]
a_cluster = lambda nodes: None
fill_with_tasks = fill_with_gangs = lambda *words: SimpleNamespace(members=1, cpu_s=1.0, decisions=[(0.1, 0.1)])
"""
    [told] = measured([Side("own", a_tree(tmp_path, own), own={"placement"})], "placement", ["--quick"])
    assert told == json.loads(json.dumps(told)) and len(told or {}) == 6


def test_two_trees_measure_in_turn_and_one_at_a_time(tmp_path: Path) -> None:
    """Each writes a line when a shot begins and one when it ends."""
    own = """
from types import SimpleNamespace
CELLS = [(1, 1, "rack")]
a_cluster = lambda nodes: None
def fill_with_tasks(*words):
    for what in ("begins", "ends"):
        with open(LOG, "a") as log: log.write(f"{NAME} {what}\\n")
    return SimpleNamespace(members=1, cpu_s=1.0, decisions=[(0.1, 0.1)])
fill_with_gangs = fill_with_tasks
"""
    log = tmp_path / "log"
    sides = [
        Side(name, a_tree(tmp_path / name, f"LOG, NAME = {str(log)!r}, {name!r}\n{own}"), own={"placement"})
        for name in ("old", "new")
    ]
    assert all(measured(sides, "placement", ["--quick"]))
    order = ("new", "old", "old", "new")  # the first one changes from turn to turn
    assert log.read_text().split("\n")[:-1] == [
        f"{name} {what}" for name in order for what in ("begins", "ends")
    ]
