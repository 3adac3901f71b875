"""`phalanx version`: which Phalanx this is."""

from __future__ import annotations

import sys

import typer

from phalanx import __version__
from phalanx.cli.output import OutputOption, emit
from phalanx.cli.session import session


def version(ctx: typer.Context, output: OutputOption = None) -> None:
    """Show the version of Phalanx and of Python."""
    python = ".".join(map(str, sys.version_info[:3]))
    value = {"phalanx": __version__, "python": python}
    chosen = session(ctx).output(output)
    emit(value, chosen, [__version__], lambda _wide: [f"phalanx {__version__} (Python {python})"])
