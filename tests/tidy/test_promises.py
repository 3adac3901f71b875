"""A promise names the test that proves it, and that test exists.

`docs/promises.md` and SECURITY.md point at tests as `tests/path.py::test_name` (or a whole file). A test that was
renamed must take its promise along.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tidy.source import ROOT

PAGES = ("docs/promises.md", "SECURITY.md")
PROOF = re.compile(r"`(tests/[\w./-]+)(?:::(\w+))?`")


def missing_proofs(root: Path, page: str) -> list[str]:
    missing = []
    for path, name in PROOF.findall((root / page).read_text("utf-8")):
        if not (root / path).exists():
            missing.append(f"{page}: {path} does not exist")
        elif name and not re.search(rf"def {name}\b", (root / path).read_text("utf-8")):
            missing.append(f"{page}: {path} has no {name}")
    return missing


def unproven(root: Path, page: str) -> list[str]:
    """Rows of a table of promises (those that begin with a code such as R1 or S9) that name no test."""
    rows = [line for line in (root / page).read_text("utf-8").splitlines() if re.match(r"\| [RS]\d+\b", line)]
    return [f"{page}: {row[:60]}" for row in rows if not PROOF.search(row) and "not promised" not in row]


@pytest.mark.parametrize("page", PAGES)
def test_every_proof_exists(page: str):
    assert missing_proofs(ROOT, page) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_promise_has_a_proof(page: str):
    assert unproven(ROOT, page) == []


def test_a_renamed_test_and_a_bare_promise_are_seen(tmp_path: Path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_a.py").write_text("def test_here(): ...\n")
    text = (
        "| R1 | x | `tests/test_a.py::test_here` |\n| R2 | y | `tests/test_a.py::test_gone` |\n| R3 | z | |\n"
    )
    (tmp_path / "page.md").write_text(text)
    assert missing_proofs(tmp_path, "page.md") == ["page.md: tests/test_a.py has no test_gone"]
    assert [line.split("| ")[1].strip() for line in unproven(tmp_path, "page.md")] == ["R3"]
