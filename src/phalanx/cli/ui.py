"""`phalanx ui`: the dashboard in a browser, logged in.

The address with its ticket is given to the browser in a file that only its user can read: the arguments of a program
can be read by everybody on the machine.
"""

from __future__ import annotations

import html
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from phalanx.cli.output import OutputOption, emit, note
from phalanx.cli.session import session
from phalanx.client.access import reach_by
from phalanx.errors import BadRequest

_FOR_TERMINALS = ("GenericBrowser", "Elinks", "UnixBrowser")  # a text browser runs no scripts


def ui(
    ctx: typer.Context,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Print the address instead of opening a browser.")
    ] = False,
    output: OutputOption = None,
) -> None:
    """Open the dashboard in a browser, logged in as you.

    The address that is printed works once, within a minute, in any browser that reaches the coordinator.
    """
    here = session(ctx)
    reach = reach_by(here.settings)
    if reach.is_grpc:
        raise BadRequest(
            f"address {reach.addresses[0]!r} is one of gRPC, and the dashboard is served over HTTP",
            hint="give the REST address of the coordinator: --address https://HOST:PORT",
        )
    found = here.client().dashboard(reach.addresses)
    if here.output(output) not in ("table", "wide"):
        emit(found, here.output(output), [found.url], lambda _wide: [])
    elif not no_browser and _opened(found.url, here.settings.state_dir):
        note(f"the dashboard was opened in your browser: {found.address}")
    else:
        if not no_browser:
            note("no browser could be opened here")
        note(f"open this address within {found.expires_in_s:.0f} s; it works once:")
        typer.echo(found.url)


def _opened(url: str, folder: Path) -> bool:
    """Whether a browser was told to go there."""
    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return False
    if type(browser).__name__ in _FOR_TERMINALS:
        return False
    page = folder / "open-dashboard.html"
    try:
        _write_private(page, url)
    except OSError:
        return False
    return browser.open(page.as_uri())


def _write_private(path: Path, url: str) -> None:
    """A page that leads on to `url`; the next one takes its place, and its ticket is worthless after a minute."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.unlink(missing_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(
        '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
        f'<meta http-equiv="refresh" content="0;url={html.escape(url)}"><title>Phalanx</title>\n'
    )
