"""Where a submission runs if it does not say: in the folder and the environment of whoever submits it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msgspec import structs

from phalanx.api.schema.exports import ALL, NONE, chosen
from phalanx.api.schema.submission import SubmitRequest
from phalanx.config import environment

Export = str | Sequence[str] | None


def with_surroundings(request: SubmitRequest, export: Export = None) -> SubmitRequest:
    """The request with the caller's folder, unless it names one, and the caller's environment, as far as `export` says:
    ALL, NONE or names. Without a word it is ALL, but NONE for an image or a VPS, which have their own.
    """
    has_own = bool(request.image) or request.kind == "vps"
    if request.cwd is None and not request.image:
        request = structs.replace(request, cwd=str(Path.cwd()))
    if export is None:
        export = NONE if has_own or request.exported else ALL
    found, _ = chosen(export, environment(), in_image=bool(request.image))
    return structs.replace(request, exported={**found, **request.exported}) if found else request
