"""References: which stage they name, and that reading them is short whatever they hold."""

from __future__ import annotations

import pytest

from phalanx.core.model.references import Reference, Unresolved, names_a_stage, read_reference

STAGES = {"a": 0, "a.b": 1, "c": 2}


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        ("a.result.x", Reference("a", ("x",))),
        ("a.b.result.x", Reference("a.b", ("x",))),
        ("a.b", Reference("a", ("b",))),
        (" c.task_id ", Reference("c", is_id=True)),
        ("a..x", Reference("a", ("x",))),
    ],
)
def test_the_longest_name_before_a_dot_is_the_stage(expression: str, found: Reference) -> None:
    assert read_reference(expression, STAGES) == found


@pytest.mark.parametrize("path", ["__class__", "result.__class__.__init__", "result.x.__globals__.os"])
def test_what_reaches_for_attributes_is_refused_before_anything_runs(path: str) -> None:
    with pytest.raises(Unresolved, match="begins with __"):
        read_reference(f"a.{path}", STAGES)
    assert read_reference("a.artifacts.__init__.py", STAGES).artifact == "__init__.py", (
        "a file may have any name"
    )


def test_a_long_text_of_dots_is_read_at_once() -> None:
    """It took minutes when every beginning of it was looked up; the time limit of a test is enough to tell."""
    text = "${" + "." * 120_000 + "}" + "${x" + ".y" * 60_000 + "}"
    assert not names_a_stage(text, STAGES)
    assert names_a_stage("${a" + ".b" * 60_000 + "}", STAGES)
    for _ in range(10_000):
        read_reference("a" + ".b" * 498, STAGES)
    with pytest.raises(Unresolved, match="too many"):
        read_reference("a." + "b" * 1000, STAGES)
