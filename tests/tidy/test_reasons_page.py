"""Every reason that users may get is in the operator's page, with what to do about it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from phalanx.core.model.orders import Why
from tests.tidy.source import ROOT, Source, sources

MAKERS = {"Reason", "_reason"}  # the value, and the table in core/model/reason.py
PAGE = (ROOT / "docs/operations/reasons.md").read_text(encoding="utf-8")


def codes(source: Source) -> Iterator[str]:
    """The codes of the reasons that a file makes."""
    for node in source.nodes:
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in MAKERS and node.args:
            for part in ast.walk(node.args[0]):
                if (
                    isinstance(part, ast.Constant)
                    and isinstance(part.value, str)
                    and part.value.isidentifier()
                ):
                    yield part.value


def test_every_code_is_explained():
    made = {code for source in sources(ROOT, "src") for code in codes(source)} - {"Ended"}  # Ended + status
    assert len(made) > 30
    assert sorted(code for code in made if f"`{code}`" not in PAGE) == []


def test_every_end_of_an_attempt_is_explained():
    told = set(re.findall(r"^\| `([a-z_]+)` \|", PAGE, re.MULTILINE))
    assert {why.word for why in Why if why} <= told


def listed() -> set[str]:
    """The codes that have a row on the page."""
    rows = re.findall(r"^\| (`[A-Z].*?) \|", PAGE, re.MULTILINE)
    return {code for row in rows for code in re.findall(r"`([A-Z]\w+)`", row)}


def test_every_code_on_the_page_is_made_by_the_program_and_by_a_test():
    made = {text for source in sources(ROOT, "src") for text in strings(source)}
    assert len(listed()) > 70
    assert sorted(listed() - made) == []
    shown = [path for path in (ROOT / "tests").rglob("*") if path.suffix in {".py", ".txt"}]
    seen = {
        word
        for path in shown
        if path.name != Path(__file__).name
        for word in re.findall(r"\b[A-Z][A-Za-z]+\b", path.read_text(encoding="utf-8"))
    }
    assert sorted(listed() - seen) == []


def strings(source: Source) -> Iterator[str]:
    for node in source.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
