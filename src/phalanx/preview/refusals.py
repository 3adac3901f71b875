"""Refusals and warnings of a coordinator, with the file and line of what they are about instead of its number."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    from phalanx.manifests.found import ParsedJob
    from phalanx.manifests.workflows import ParsedWorkflow

_SPEC = re.compile(r"specs\[(\d+)\](?: \(([^)]*)\))?: ")  # how the coordinator names a job of several
_WORKFLOW = re.compile(r"workflows\[(\d+)\]: ")


@contextmanager
def refusals_at(found: Sequence[ParsedJob]) -> Iterator[None]:
    """What the coordinator refuses of these jobs is told with the file and line of the job."""
    try:
        yield
    except PhalanxError as error:
        error.detail = located(error.detail, found)
        raise


@contextmanager
def workflow_refusals_at(flows: Sequence[ParsedWorkflow]) -> Iterator[None]:
    """What the coordinator refuses of these workflows is told with the file and line of the workflow."""
    try:
        yield
    except PhalanxError as error:
        at = _WORKFLOW.match(error.detail)
        if at is not None and int(at[1]) < len(flows):
            error.detail = f"{flows[int(at[1])].where}: {error.detail[at.end() :]}"
        raise


def located(text: str, found: Sequence[ParsedJob]) -> str:
    """The text, with the place of the job in its file if it begins with the job's number."""
    at = _SPEC.match(text)
    if at is None or int(at[1]) >= len(found):
        return text
    return ": ".join(filter(None, (found[int(at[1])].where, at[2], text[at.end() :])))
