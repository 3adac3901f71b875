"""`python -m tests.hostile`."""

from __future__ import annotations

import sys

from tests.hostile.main import main

if __name__ == "__main__":
    sys.exit(main())
