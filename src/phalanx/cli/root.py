"""The command line: `phalanx <noun> <verb>`, and short verbs for every day.

This file runs one command and reports how it ended: an error with a hint on standard error, and the exit code that
belongs to it (`phalanx.errors` has the table). Which commands there are stands in `catalogue.py`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from phalanx.cli.catalogue import Root
from phalanx.cli.output import tell_error
from phalanx.cli.session import CliSession, flags_before
from phalanx.errors import PhalanxError

INTERRUPTED = 130
app = typer.Typer(cls=Root, name="phalanx", rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
def root(
    ctx: typer.Context,
    address: Annotated[
        str | None,
        typer.Option(help="Address of the cluster, http://host:port; several separated by commas."),
    ] = None,
    token_file: Annotated[Path | None, typer.Option(help="File containing the API token.")] = None,
    ca_file: Annotated[
        Path | None, typer.Option(help="The cluster's CA certificate (ca.crt), for https.")
    ] = None,
    state: Annotated[Path | None, typer.Option(help="State folder of the cluster on this machine.")] = None,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """A scheduler for AI work: all-or-nothing, topology-aware gang scheduling.

    Get started with `phalanx up`, then `phalanx run -- echo hello`.
    """
    ctx.obj = CliSession(flags_before(address, token_file, ca_file, state))
    if version:
        from phalanx import __version__

        print(f"phalanx {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        print(ctx.get_help())


def run(args: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        code = typer.main.get_command(app).main(list(args), prog_name="phalanx", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except PhalanxError as error:
        tell_error(error.detail, error.hint)
        return error.exit_code
    except typer.TyperException as error:
        tell_error(error.format_message(), _usage_hint(error))
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has closed the pipe. Buffered output is discarded, or Python would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:  # A folder that is gone, a disk that is full.
        tell_error(str(error), "")
        return 1


def _usage_hint(error: typer.TyperException) -> str:
    """Where to read more: the help of the command that was used wrongly."""
    ctx = getattr(error, "ctx", None)
    return f"see `{ctx.command_path} --help`" if ctx is not None else ""
