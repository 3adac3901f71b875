"""A promise names the test that proves it, and that test exists; so does what answers each finding of new users.

`docs/promises.md`, SECURITY.md and `tests/FINDINGS.md` point at tests as `tests/path.py::test_name` (or a whole file).
A test that was renamed must take its promise along.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tidy.source import ROOT

FINDINGS = "tests/FINDINGS.md"
PAGES = ("docs/promises.md", "SECURITY.md", FINDINGS)
PROOF = re.compile(r"`(tests/[\w./-]+)(?:::(\w+))?`")

CODE = re.compile(r"\| ([RSP]\d+|U\d\.\d+)\b")


def missing_proofs(root: Path, page: str) -> list[str]:
    missing = []
    for path, name in PROOF.findall((root / page).read_text("utf-8")):
        if not (root / path).exists():
            missing.append(f"{page}: {path} does not exist")
        elif name and not re.search(rf"def {name}\b", (root / path).read_text("utf-8")):
            missing.append(f"{page}: {path} has no {name}")
    return missing


def unproven(root: Path, page: str) -> list[str]:
    """Rows of a table (those that begin with a code such as R1, P9 or U3.2) that name no test and no reason why not."""
    excused = re.compile(r"not promised|no test: ")
    return [
        f"{page}: {row[:60]}" for row in rows(root, page) if not PROOF.search(row) and not excused.search(row)
    ]


def rows(root: Path, page: str) -> list[str]:
    return [line for line in (root / page).read_text("utf-8").splitlines() if CODE.match(line)]


@pytest.mark.parametrize("page", PAGES)
def test_every_proof_exists(page: str):
    assert missing_proofs(ROOT, page) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_promise_has_a_proof(page: str):
    assert unproven(ROOT, page) == []


def test_every_finding_is_answered():
    codes = [found[1] for row in rows(ROOT, FINDINGS) if (found := CODE.match(row))]
    expected = [f"P{number}" for number in range(1, 37)]
    expected += [f"U3.{number}" for number in range(1, 36)] + [f"U4.{number}" for number in range(1, 12)]
    expected += [f"U6.{number}" for number in (1, 2, 3, 4, 8, 9, 10, 19, 22, 23)]
    assert codes == expected


def test_a_renamed_test_and_a_bare_promise_are_seen(tmp_path: Path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").write_text("def test_here(): ...\n")
    text = (
        "| R1 | x | `tests/test_a.py::test_here` |\n| R2 | y | `tests/test_a.py::test_gone` |\n| R3 | z | |\n"
    )
    (tmp_path / "page.md").write_text(text)
    assert missing_proofs(tmp_path, "page.md") == ["page.md: tests/test_a.py has no test_gone"]
    assert [line.split("| ")[1].strip() for line in unproven(tmp_path, "page.md")] == ["R3"]
