"""Puts the built dashboard into the wheel: builds it first if it is not there, or says what is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class DashboardHook(BuildHookInterface):  # type: ignore[type-arg]
    """Runs before a wheel is packed; an editable installation needs nothing of it."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        built = root / "src/phalanx/dashboard/static/index.html"
        if version == "editable":
            return
        if (root / "scripts/ui").is_file():
            subprocess.run(
                ["/usr/bin/env", "bash", "scripts/ui", "--if-possible"],
                cwd=root,
                check=True,
                stdout=sys.stderr,
            )
        if not built.is_file():
            self.app.display_warning(
                "This wheel has no dashboard: /ui/ will say so. See above what is missing."
            )
