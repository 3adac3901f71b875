"""A real Prometheus for a few minutes: it scrapes coordinators, and answers queries."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.dashboard.panels import JOB, Series

STEP_S = 2
CONFIG = """\
scrape_configs:
  - job_name: {job}
    scrape_interval: 1s
    authorization:
      credentials_file: {token}
    static_configs:
      - targets: {targets}
"""


class Prometheus:
    def __init__(self, folder: Path, port: int, targets: list[str], token: str) -> None:
        folder.mkdir(parents=True)
        self._address = f"http://127.0.0.1:{port}"
        file = folder / "token"
        file.write_text(token)
        config = folder / "prometheus.yml"
        config.write_text(CONFIG.format(job=JOB, token=file, targets=json.dumps(targets)))
        words = [
            "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
        ]
        self._process = subprocess.Popen(words, cwd=folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(30.0)

    def up(self) -> int:
        """How many targets answer."""
        try:
            found = self._ask("query", query=f'sum(up{{job="{JOB}"}})')
        except (urllib.error.URLError, ConnectionError):
            return 0
        return int(float(found[0]["value"][1])) if found else 0

    def range(self, expr: str, began: float, ended: float) -> list[Series]:
        """What a query gives between two instants."""
        found = self._ask("query_range", query=expr, start=began, end=ended, step=STEP_S)
        return [
            Series(each["metric"], [(float(at), float(value)) for at, value in each["values"]])
            for each in found
        ]

    def _ask(self, path: str, **fields: object) -> Any:
        query = urllib.parse.urlencode(fields)
        with urllib.request.urlopen(f"{self._address}/api/v1/{path}?{query}", timeout=30.0) as answer:
            return json.load(answer)["data"]["result"]
