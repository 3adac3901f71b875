"""`phalanx config`: what the settings are, and where each comes from."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from phalanx.cli.output import OutputOption, Table, emit
from phalanx.cli.session import session
from phalanx.config import SYSTEM, files
from phalanx.errors import NotFound
from phalanx.settings import KEYS, Settings
from phalanx.settings_aliases import ALIASES


def show(ctx: typer.Context, output: OutputOption = None) -> None:
    """List every setting, its value and its source."""
    here = session(ctx)
    found = here.settings
    values = {key: {"value": _plain(_value(found, key)), "source": _source(found, key)} for key in KEYS}
    emit(values, here.output(output), KEYS, lambda _wide: _table(found))


def explain(
    ctx: typer.Context,
    key: Annotated[str | None, typer.Argument(autocompletion=lambda: list(KEYS), show_default=False)] = None,
    output: OutputOption = None,
) -> None:
    """Explain a setting: its purpose, its value and every source that sets it. Without KEY, all settings."""
    if key is not None and key not in KEYS:
        from difflib import get_close_matches

        near = get_close_matches(key, KEYS, n=1)
        raise NotFound(
            f"no setting {key!r}", hint=f"did you mean {near[0]}?" if near else "see `config show`"
        )
    here = session(ctx)
    keys = [key] if key else list(KEYS)
    values = {each: _explained(here.settings, each) for each in keys}
    emit(values, here.output(output), keys, lambda _wide: _paragraphs(values))


def path(ctx: typer.Context, output: OutputOption = None) -> None:
    """List the configuration files in order of precedence, and the state folder."""
    here = session(ctx)
    read = [str(each) for each in files()]
    state = str(here.settings.state_dir)
    lines = [*read, f"state folder: {state}"]
    emit(
        {"files": read, "system": str(SYSTEM), "state_dir": state},
        here.output(output),
        read,
        lambda _wide: lines,
    )


def _table(found: Settings) -> Table:
    table = Table("KEY", "VALUE", "SOURCE", narrows={"VALUE": 16, "SOURCE": 12})
    for key in KEYS:
        table.add(key, _plain(_value(found, key)), _source(found, key))
    return table


def _explained(found: Settings, key: str) -> dict[str, Any]:
    aliases = [alias for alias, names in ALIASES.items() if key in names]
    return {
        "purpose": KEYS[key].purpose,
        "expected": KEYS[key].expected,
        "variables": [KEYS[key].variable, *aliases],
        "value": _plain(_value(found, key)),
        "source": _source(found, key),
        "given": [{"value": _plain(each.value), "source": each.source} for each in found.given.get(key, ())],
    }


def _paragraphs(values: dict[str, dict[str, Any]]) -> Iterable[str]:
    for key, about in values.items():
        yield f"{key} = {about['value']}"
        yield f"  from {about['source']}"
        for weaker in about["given"][1:]:
            yield f"  {weaker['source']} sets {weaker['value']} (overridden)"
        yield f"  {about['purpose']}; expected {about['expected']}"
        yield f"  set it by {' or '.join(about['variables'])}, or in phalanx.toml"


def _value(found: Settings, key: str) -> Any:
    section, _, name = key.rpartition(".")
    return getattr(getattr(found, section) if section else found, name)


def _source(found: Settings, key: str) -> str:
    given = found.given.get(key)
    if given and _value(found, key) is not None:
        return given[0].source
    return "default"


def _plain(value: Any) -> Any:
    """A value that JSON knows; a secret stays one."""
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, str):
        return repr(value) if type(value) is not str else value
    return list(value) if isinstance(value, tuple) else value
