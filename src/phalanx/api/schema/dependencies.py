"""What comes first, as texts: `17`, `17:any`, `17:fit` for a stage; and as Slurm writes it, for the hint of an error.

The jobs are looked up by the coordinator (`coordinator/dependencies.py`).
"""

from __future__ import annotations

from typing import get_args

from phalanx.api.schema.fields import check_count, shown
from phalanx.core.model.job import AFTER_MAX, After, When
from phalanx.errors import BadRequest

WHENS: tuple[When, ...] = get_args(When)
_OURS = {
    "afterok": "",
    "afterany": ":any",
    "afternotok": ":failed",
    "after": ":started",
    "aftercorr": ":each",
}


def read_after(texts: list[str]) -> tuple[After, ...]:
    """Jobs that come first, from texts such as ID (it has to complete) or ID:any; the ids are not looked up here."""
    check_count("after", len(texts), AFTER_MAX)
    found: dict[str, After] = {}
    for text in texts:
        after = _after(text)
        if after.job in found:
            raise BadRequest(f"after: {shown(after.job)} is given twice")
        found[after.job] = after
    return tuple(found.values())


def _after(text: str) -> After:
    """One of them. A last word that says when is never the name of a stage: of stage `any` that is FLOW:any:any."""
    words, hint = text.split(":"), dependency_hint(text)
    each = len(words) > 1 and words[-1] == "each"
    words = words[:-1] if each else words
    when = next((known for known in WHENS if words[1:] and words[-1] == known), None)
    words = words[:-1] if when is not None else words
    if not all(words) or len(words) > 2 or hint:
        whens = "|".join(WHENS)
        raise BadRequest(
            f"after: {shown(text)} is not JOB[:{whens}][:each], with WORKFLOW:STAGE as a job", hint=hint
        )
    return After(":".join(words), when or "ok", each)


def after_of(kind: str, job: str) -> str | None:
    """One of Slurm's dependencies in our words: afterok of 5 is 5, afterany 5:any; None for what we have not."""
    return f"{job}{_OURS[kind]}" if kind in _OURS and job.isalnum() else None


def dependency_hint(text: str) -> str:
    """How it is written here, whether Slurm's word is before or behind the job; empty if there is none."""
    words = text.split(":")
    theirs = next((word for word in words if word in _OURS), None)
    if theirs is None:
        return ""
    job = next((word for word in words if word and word not in _OURS), "JOB")
    return f"{theirs} of Slurm is {job}{_OURS[theirs]} here"
