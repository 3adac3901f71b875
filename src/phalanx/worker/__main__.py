"""`python -m phalanx.worker`: serves calls of the executor whose job it is a task of, until there are none."""

from __future__ import annotations

import sys

from phalanx.config import environment
from phalanx.errors import PhalanxError
from phalanx.worker.environment import worker_environment
from phalanx.worker.main import serve


def main() -> int:
    """The exit code: 0 if there was nothing more to do."""
    try:
        return serve(worker_environment(environment()))
    except PhalanxError as error:
        sys.stderr.write(f"phalanx worker: {error.detail}\n{error.hint}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
