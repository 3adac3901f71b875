"""Gangs that cannot start because their files lack something: they wait, and a plan says for what."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from phalanx.api.schema.apply import MUST_WAIT, PlanReason, PlanReply
from phalanx.manifests.found import Incomplete


def with_incomplete(reply: PlanReply, found: Iterable[Incomplete]) -> PlanReply:
    """The plan with a reason for each of them."""
    lacking = [
        PlanReason(each.id, no.code, no.tier.word, no.text, no.numbers, dominant=True)
        for each in found
        for no in [each.reason]
    ]
    if not lacking:
        return reply
    return structs.replace(reply, reasons=[*reply.reasons, *lacking], exit=max(reply.exit, MUST_WAIT))
