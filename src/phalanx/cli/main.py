"""The `phalanx` command starts here, as fast as it can.

Start-up is most of what a short command costs. The commands themselves, and how they end, are in `root.py`.
"""

from __future__ import annotations

import gc
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line of this process."""
    gc.set_threshold(
        50_000
    )  # imports make many objects and drop few: looking for garbage meanwhile finds none
    from phalanx.cli.root import run

    sys.exit(run(sys.argv[1:]))
