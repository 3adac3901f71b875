"""The built dashboard: `static` holds what `make ui` makes of the sources in `ui/`. Nothing here is Python."""

from __future__ import annotations

from pathlib import Path

STATIC = Path(__file__).parent / "static"
