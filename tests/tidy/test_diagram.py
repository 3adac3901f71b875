"""The drawing of a task's life is the table's own."""

from __future__ import annotations

from phalanx.core.cluster.transitions import diagram
from tests.tidy.source import ROOT


def test_the_drawing_is_up_to_date() -> None:
    page = (ROOT / "docs/concepts/task-lifecycle.md").read_text()
    assert diagram() in page, "make it again from phalanx.core.cluster.transitions.diagram()"
