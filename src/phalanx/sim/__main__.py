"""`python -m phalanx.sim`."""

from __future__ import annotations

import sys

from phalanx.sim.main import main

if __name__ == "__main__":
    sys.exit(main())
