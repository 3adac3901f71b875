"""Where tests lie: tests/unit mirrors src/phalanx, and CONTRIBUTING.md names every folder of tests."""

from __future__ import annotations

import re
from pathlib import Path

from tests.tidy.source import ROOT, a_tree

BESIDE = {"bench", "docs"}  # folders of the repository that are tested too


def unmirrored(root: Path) -> list[str]:
    """Folders with unit tests that stand for no folder of the source."""
    tests = root / "tests/unit"
    folders = {path.parent.relative_to(tests).as_posix() for path in tests.rglob("test_*.py")}
    return sorted(
        folder
        for folder in folders
        if folder.partition("/")[0] not in BESIDE and not (root / "src/phalanx" / folder).is_dir()
    )


def undescribed(root: Path) -> set[str]:
    """Folders of tests that the table leaves out, and those in the table that are not there."""
    named = set(re.findall(r"^\| `tests/(\w+)/`", (root / "CONTRIBUTING.md").read_text(), re.MULTILINE))
    there = {path.parent.name for path in root.glob("tests/*/*.py")}
    return named ^ there


def test_unit_tests_lie_where_the_source_does():
    assert unmirrored(ROOT) == []


def test_every_folder_of_tests_is_described():
    assert undescribed(ROOT) == set()


def test_a_folder_that_mirrors_nothing_is_seen(tmp_path: Path):
    a_tree(
        tmp_path,
        {"src/phalanx/core/a.py": "", "tests/unit/core/test_a.py": "", "tests/unit/cor/test_b.py": ""},
    )
    (tmp_path / "CONTRIBUTING.md").write_text("| `tests/unit/` | nothing |\n| `tests/gone/` | nothing |\n")
    assert unmirrored(tmp_path) == ["cor"]
    assert undescribed(tmp_path) == {"gone", "unit"}
