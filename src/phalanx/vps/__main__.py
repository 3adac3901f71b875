"""The program of a VPS: `python -m phalanx.vps FOLDER`, started by a runner as the task itself."""

from __future__ import annotations

import sys
from pathlib import Path

from phalanx.vps.main import main

if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
