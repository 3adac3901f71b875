"""Files for commands that plan: options that name them, and how they are read.

What a file cannot have honoured goes to standard error; with --strict it is an error. A file that cannot be read ends
the command with code 1, since nothing was wrong with how the command was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phalanx.cli.apply import texts_of
from phalanx.cli.output import note, tell_error
from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    from phalanx.manifests.read import Manifests

BAD_FILE = 1
ClusterOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--cluster",
        help="Files that describe a cluster, instead of a running one: YAML of ours or of kubectl; repeatable.",
    ),
]
StrictOption = Annotated[bool, typer.Option("--strict", help="Refuse what could not be honoured.")]


def read_files(files: Sequence[Path], cluster: Sequence[Path], strict: bool) -> Manifests:
    """What these files hold; cautions are told."""
    from phalanx.manifests.read import read

    try:
        texts = texts_of([*cluster, *files])
        made = read(texts[len(cluster) :], cluster=texts[: len(cluster)], strict=strict, for_plan=True)
    except PhalanxError as error:
        tell_error(error.detail, error.hint)
        raise typer.Exit(BAD_FILE) from None
    for caution in made.warnings:
        note(f"warning: {caution}")
    return made
