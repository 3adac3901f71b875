"""`python -m tests.chaos`."""

from __future__ import annotations

import sys

from tests.chaos.main import main

if __name__ == "__main__":
    sys.exit(main())
