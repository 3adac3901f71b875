"""What the API reports of tasks is what they recorded themselves, though parts are killed with -9 meanwhile (R31)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.truth import run


@pytest.mark.timeout(180)
def test_codes_and_times_are_those_that_the_tasks_wrote(tmp_path: Path) -> None:
    verdict = run(tmp_path, attempts=100, pause_s=1.0)
    assert verdict.untrue == []
    assert verdict.compared["codes of tasks"] >= 40 and verdict.compared["codes in stories"] >= 40
