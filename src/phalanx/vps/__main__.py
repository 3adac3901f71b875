"""The program of a VPS: `python -m phalanx.vps FOLDER [PID BIRTH]`, started as the task or beside a container."""

from __future__ import annotations

import sys
from pathlib import Path

from phalanx.vps.main import main

if __name__ == "__main__":
    folder, *container = sys.argv[1:]
    sys.exit(main(Path(folder), (int(container[0]), int(container[1])) if container else None))
