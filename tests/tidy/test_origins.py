"""Source and pages explain themselves: they refer to nothing that a reader of the repository does not have.

The numbers of the projects we learned from, of findings and of requirements were ours while we built. `docs/origins.md`
names the projects; decision records may keep the old numbers.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.tidy.source import ROOT, a_tree, files

PAPERS = re.compile(
    r"\bseeds? 00\d|\bthe seeds'|\bthe contract(?:'s)? (?:case|section|asks|says)|\bfinding [A-Z]\d",
    re.IGNORECASE,
)
# A letter and a number, such as X3 or S29; what a linter is told is none, and neither is the service called S3.
NUMBERS = re.compile(r"(?<![\w.-])(?!S3\b)[CKMPRSUX]\d{1,2}(?![\w.-])")
NOQA = re.compile(r"#\s*noqa.*")
# Where the promises are, with the numbers that their tests are named by.
NUMBERED = {"docs/promises.md", "SECURITY.md"}


def strangers(root: Path) -> list[str]:
    """Lines that refer to papers outside the repository."""
    pages = [*files(root, "docs", ".md"), *root.glob("*.md")]
    pages = [path for path in pages if "decisions" not in path.parts and path.name != "CHANGELOG.md"]
    found = []
    for path in [*files(root, "src", ".py"), *sorted(pages)]:
        name = path.relative_to(root).as_posix()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            text = NOQA.sub("", line)
            if PAPERS.search(text) or (name not in NUMBERED and NUMBERS.search(text)):
                found.append(f"{name}:{number}: {line.strip()}")
    return found


def test_nothing_refers_to_papers_outside_the_repository():
    assert strangers(ROOT) == []


def test_a_reference_to_a_paper_is_seen(tmp_path: Path):
    a_tree(
        tmp_path,
        {
            "src/a.py": "x = 1  # as seed 003 says\ny = 2  # (S29)\nz = 3  # noqa: S10 - is a linter's\n",
            "docs/b.md": "R21 is not built.\n",
            "docs/promises.md": "R21 is a promise.\n",
            "docs/decisions/0001-a.md": "Seed 001 asks for it.\n",
        },
    )
    assert [each.rpartition(": ")[0] for each in strangers(tmp_path)] == [
        "src/a.py:1",
        "src/a.py:2",
        "docs/b.md:1",
    ]
