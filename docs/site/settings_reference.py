"""Every setting as a Markdown table: key, variable, what it expects, its default, what it is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from phalanx.config import load
from phalanx.settings import KEYS, LISTS, Settings
from phalanx.settings_aliases import ALIASES

_HOME = "/home/you"
_NOWHERE = Path("/nonexistent")
TITLES = {
    "": "General",
    "coordinator": "Coordinator",
    "scheduler": "Scheduler",
    "elastic": "Elastic nodes",
    "overlay": "Overlay network",
    "runner": "Runner",
    "client": "Client",
}


def text() -> str:
    """A table for each section."""
    state = f"{_HOME}/.local/state/phalanx"
    settings = load({}, environment={"HOME": _HOME}, folder=_NOWHERE, system=_NOWHERE)
    parts = []
    for section, title in TITLES.items():
        lines = [
            f"## {title}",
            "",
            "| key and variable | what it is for | expects | default |",
            "|---|---|---|---|",
        ]
        lines += [_row(key, settings, state) for key in KEYS if key.rpartition(".")[0] == section]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def aliases() -> str:
    """The variables of Krishiv and FlowMesh that are read as well."""
    lines = ["| variable | sets |", "|---|---|"]
    lines += [f"| `{name}` | {', '.join(f'`{key}`' for key in keys)} |" for name, keys in ALIASES.items()]
    return "\n".join(lines) + "\n"


def _row(key: str, settings: Settings, state: str) -> str:
    about = KEYS[key]
    purpose, expected = (each.replace("|", "\\|") for each in (about.purpose, about.expected))
    return f"| `{key}`<br>`{about.variable}` | {purpose} | {expected} | {_default(key, settings, state)} |"


def _default(key: str, settings: Settings, state: str) -> str:
    section, _, name = key.rpartition(".")
    value: Any = getattr(getattr(settings, section) if section else settings, name)
    if key in ("runner.name", "coordinator.name"):
        return "the host's name"
    if key in LISTS and value:
        value = ",".join(value)
    if value is None or value == ():
        return "—"
    shown = f"{value:g}" if isinstance(value, float) else str(value)
    host = settings.runner.name
    return "`" + shown.replace(state, "$STATE").replace(f"/runners/{host}", "/runners/NAME") + "`"
