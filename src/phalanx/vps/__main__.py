"""The program of a VPS: `python -m phalanx.vps FOLDER [PID]`, started as the task itself, or beside a container."""

from __future__ import annotations

import sys
from pathlib import Path

from phalanx.vps.main import main

if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None))
