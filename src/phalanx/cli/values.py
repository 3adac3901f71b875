"""NAME=VALUE as options take it, once or for several names."""

from __future__ import annotations

import typer

from phalanx.cli.output import note


def spelled(text: str, what: str) -> str:
    """Bytes that are not UTF-8 cannot travel as JSON; say so before they try."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise typer.BadParameter(f"{text!r} is not UTF-8", param_hint=what) from None
    return text


def pair(text: str, option: str) -> tuple[str, str]:
    """An option's NAME=VALUE."""
    name, equals, value = spelled(text, option).partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint=option)
    return name, value


def pairs(texts: list[str] | None, option: str) -> dict[str, str]:
    """Each NAME=VALUE; of a name that is given with two values the last one counts, and that is said."""
    found: dict[str, str] = {}
    for name, value in (pair(each, option) for each in texts or []):
        if found.get(name, value) != value:
            note(f"warning: {option} {name} is given twice; {name}={value} counts")
        found[name] = value
    return found
