"""`make demo` runs to its end, shows what it promises, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.source import ROOT

SHOWN = (
    " with GPUs 0,1",
    "(TargetNotFound)",
    "part 42",
    "rank 7 of 8",
    "TargetBusy",
    "(exit code 4)",
    "AttemptEnded",
    "That was the tour.",
)


@pytest.mark.timeout(240)
def test_the_demo_runs_to_its_end(tmp_path: Path):
    kept = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    folder = Path(sys.executable).parent
    run = subprocess.run(
        ["bash", str(ROOT / "scripts/demo")],
        env=kept
        | {
            "PATH": f"{folder}:{os.environ['PATH']}",
            "TMPDIR": str(tmp_path),
            "XDG_CONFIG_HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
    missing = [part for part in SHOWN if part not in run.stdout + run.stderr]
    assert not missing, run.stdout
    assert not list(tmp_path.glob("tmp.*")), "its state folder is gone, so its cluster was stopped"
