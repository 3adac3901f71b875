"""The `phalanx` command starts here, as fast as it can.

Start-up is most of what a short command costs, so two things are arranged before anything is imported; the
commands themselves, and how their ends are told, are in `root.py`.
"""

from __future__ import annotations

import gc
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line of this process."""
    # Imports make many objects and drop few: looking for garbage 70 times meanwhile costs a tenth of the time.
    gc.set_threshold(50_000)
    _import_msgspec()
    from phalanx.cli.root import run

    sys.exit(run(sys.argv[1:]))


def _import_msgspec() -> None:
    """Without typing_extensions, which it takes if there is one: another tenth, and nothing here needs it."""
    if "typing_extensions" not in sys.modules:
        sys.modules["typing_extensions"] = None  # type: ignore[assignment]
        import msgspec  # noqa: F401

        del sys.modules["typing_extensions"]
