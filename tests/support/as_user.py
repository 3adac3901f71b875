"""Python code as a process for which permissions of files count, also where the tests run as root."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_RIGHTS = "-dac_override,-dac_read_search"


def run_as_user(code: str, *arguments: str | Path) -> str:
    """Run this in a process without the rights with which root passes over permissions; what it printed."""
    without = ["setpriv", f"--bounding-set={_RIGHTS}", f"--inh-caps={_RIGHTS}"] if os.geteuid() == 0 else []
    words = [*without, sys.executable, "-c", f"import sys; {code}", *map(str, arguments)]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout
