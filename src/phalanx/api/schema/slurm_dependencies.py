"""Dependencies as Slurm writes them, for the hint of an error: `afterany:17` is `17:any` here."""

from __future__ import annotations

_OURS = {
    "afterok": "",
    "afterany": ":any",
    "afternotok": ":failed",
    "after": ":started",
    "aftercorr": ":each",
}


def dependency_hint(text: str) -> str:
    """How it is written here, whether Slurm's word is before or behind the job; empty if there is none."""
    words = text.split(":")
    theirs = next((word for word in words if word in _OURS), None)
    if theirs is None:
        return ""
    job = next((word for word in words if word and word not in _OURS), "JOB")
    return f"{theirs} of Slurm is {job}{_OURS[theirs]} here"
