"""The parts of committed pages that are made from the code: `python -m docs.site.pages` writes them anew.

Such a part stands between two comments, `<!-- made: NAME -->` and `<!-- end -->`; what is around it is written by hand.
A test compares each with what is made now, so a page cannot tell of a setting or a call that is no more.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

from docs.site import (
    files,
    lifecycles,
    metrics_reference,
    python_reference,
    settings_reference,
    workflow_picture,
)

ROOT = Path(__file__).resolve().parents[2]
MAKERS: dict[str, Callable[[], str]] = {
    "files": files.text,
    "metrics": metrics_reference.text,
    "settings": settings_reference.text,
    "aliases": settings_reference.aliases,
    "python-clients": python_reference.clients_text,
    "python-types": python_reference.types_text,
    **{f"moves-of-a-{name}": partial(lifecycles.table, name) for name in lifecycles.LIVES},
}
PAGES = (
    "docs/concepts/lifecycles.md",
    "docs/operations/metrics.md",
    "docs/reference/settings.md",
    "docs/reference/python.md",
    "docs/reference/python-types.md",
    "docs/reference/source-files.md",
)
_PART = re.compile(r"(<!-- made: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def made(root: Path = ROOT) -> dict[str, str]:
    """Every file that is made or has made parts, with its content as it should be."""
    found = {f"docs/concepts/{name}.svg": lifecycles.drawing(name) for name in lifecycles.LIVES}
    found["docs/guides/workflow.svg"] = workflow_picture.drawing()
    for page in PAGES:
        text = (root / page).read_text(encoding="utf-8")
        found[page] = _PART.sub(lambda part: f"{part[1]}\n{MAKERS[part[2]]()}\n{part[3]}", text)
    return found


if __name__ == "__main__":
    for path, text in made().items():
        (ROOT / path).write_text(text, encoding="utf-8")
