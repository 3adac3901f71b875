"""A process of ours that exchanges lines of JSON with us: a load, or a scheduler we compare with."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


class Partner:
    """Started with the repository on its path; its stderr goes into a log beside its work."""

    def __init__(self, words: Sequence[str], folder: Path, name: str) -> None:
        self.name = name
        self._log = folder / f"{name}.log"
        before = os.environ.get("PYTHONPATH", "")  # `bench.compare` sets there which code is measured
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=folder,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (before, str(ROOT))))},
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, given: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(given) + "\n")
        self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        """The next line that is JSON; some schedulers print tables between."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise RuntimeError(f"{self.name} ended: {self._log.read_text()[-2000:]}")

    def ask(self, given: Mapping[str, Any]) -> dict[str, Any]:
        self.tell(given)
        return self.hear()

    def stop(self) -> None:
        """It ends when its stdin is closed, or is killed."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
