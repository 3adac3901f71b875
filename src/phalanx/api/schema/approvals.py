"""Approvals over REST: what is said with one, and what has become of the job or workflow."""

from __future__ import annotations

from msgspec import Struct

from phalanx.errors import BadRequest

REASON_MAX = 1000


class ApprovalRequest(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Why a job is denied."""

    reason: str = ""


class ApprovalReply(Struct):
    """A job or workflow that was approved or denied, and by whom."""

    id: str
    approved: bool
    by: str
    number: int = 0


def check_denial(request: ApprovalRequest) -> str:
    """The reason of a denial, which its user will read."""
    text = request.reason.strip()
    if not text or len(text) > REASON_MAX or not text.isprintable():
        raise BadRequest(
            f"reason: a denial needs one, a line of 1 to {REASON_MAX} characters", reason="ReasonMissing"
        )
    return text
