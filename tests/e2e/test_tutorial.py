"""The tutorial's commands do what it says, in its order; a line that ends in `# exits with N` does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.source import ROOT

BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
EXIT = re.compile(r"^(.*?)\s+# exits with (\d+)$", re.MULTILINE)


def script(page: str) -> str:
    """All commands of a page as one script that stops at the first unexpected result."""
    commands = "\n".join(BLOCK.findall(page))
    checked = EXIT.sub(
        r'code=0; \1 || code=$?; [ "$code" = \2 ] || { echo "exit $code, not \2"; exit 1; }', commands
    )
    return "set -euo pipefail\ntrap 'phalanx down >/dev/null 2>&1 || true' EXIT\n" + checked


@pytest.mark.timeout(240)
def test_the_tutorial_can_be_followed(tmp_path: Path):
    bin_folder = Path(sys.executable).parent
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
    run = subprocess.run(
        ["bash", "-c", script((ROOT / "docs/tutorial.md").read_text(encoding="utf-8"))],
        cwd=tmp_path,
        env=kept | {"PATH": f"{bin_folder}:{os.environ['PATH']}", "XDG_CONFIG_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
    for part in ("NaN in the loss", "rank 2 of 4", "Completed 2", "refused: "):
        assert part in run.stdout


def test_an_exit_code_that_was_not_told_is_seen():
    page = "```sh\nfalse  # exits with 1\ntrue  # exits with 3\n```\n"
    run = subprocess.run(["bash", "-c", script(page)], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (1, "exit 0, not 3\n")
