"""Files for commands that plan: options that name them, and how they are read.

Unsupported fields are reported on standard error; with --strict they are errors. What is wrong in a file ends
the command with the code that the same mistake has on the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from phalanx.cli.apply import texts_of
from phalanx.cli.drafts import Drafts
from phalanx.cli.output import note, tell_error
from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    from phalanx.client.client import Client
    from phalanx.manifests.read import Manifests, Text

T = TypeVar("T")
ClusterOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--cluster",
        help="Files that describe a cluster, instead of a running one: our YAML or kubectl's; repeatable.",
    ),
]
StrictOption = Annotated[bool, typer.Option("--strict", help="Treat unsupported fields as errors.")]


def read_files(files: Sequence[Path], cluster: Sequence[Path], strict: bool) -> Manifests:
    """What these files hold; warnings are printed."""
    texts = _read(lambda: texts_of([*cluster, *files]))
    made = _read(lambda: _manifests(texts[len(cluster) :], texts[: len(cluster)], strict))
    for caution in made.warnings:
        note(f"warning: {caution}")
    return made


def read_with_drafts(files: Sequence[Path], client: Client, strict: bool) -> tuple[Manifests, Drafts]:
    """What these files hold together with members that were applied before; warnings are printed."""
    texts = _read(lambda: texts_of(files))
    alone = _read(lambda: _manifests(texts, [], strict))
    drafts = Drafts(client, lambda kept: _read(lambda: _manifests(texts, [], strict, kept)), strict=strict)
    made = drafts.read(alone)
    for caution in made.warnings:
        note(f"warning: {caution}")
    return made, drafts


def _manifests(
    texts: Sequence[Text], cluster: Sequence[Text], strict: bool, kept: Sequence[str] = ()
) -> Manifests:
    from phalanx.manifests.read import read

    return read(texts, cluster=cluster, strict=strict, for_plan=True, kept=kept)


def _read(reader: Callable[[], T]) -> T:
    """What is read from files; errors in them become ours."""
    try:
        return reader()
    except PhalanxError as error:
        for each in (error, *getattr(error, "others", ())):
            tell_error(each.detail, each.hint)
        raise typer.Exit(error.exit_code) from None
