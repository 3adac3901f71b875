"""Every reason that users may get is in the operator's page, with what to do about it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from phalanx.core.model.status import Why
from tests.tidy.source import ROOT, Source, sources

PAGE = (ROOT / "docs/operations/reasons.md").read_text(encoding="utf-8")


def codes(source: Source) -> Iterator[str]:
    """The codes of the reasons that a file makes."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "Reason" and node.args:
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
