"""Plans of files as they were written: job files and manifests are read here, for clients that cannot read them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import structs

from phalanx.api.schema.apply import Called, PlanFilesRequest, PlanReply, PlanRequest, check_files
from phalanx.core.explain.change import ADMIN, Asker
from phalanx.errors import PhalanxError
from phalanx.manifests.read import Manifests, read
from phalanx.preview.incomplete import with_incomplete
from phalanx.preview.refusals import located, refusals_at, workflow_refusals_at

Plan = Callable[[PlanRequest, str, str, Asker], Awaitable[PlanReply]]
NOT_APPLIED = "a plan asks the cluster as it is; layers and quotas of these files are not applied to it"
NOTHING = "no job waits there, so there is nothing to plan"
ERRORS_MAX = 20
DOCUMENTS_MOST = 2000  # of each file: reading more takes seconds, and a plan has fewer jobs


class PlannedFiles:
    """Reads files beside the loop, and asks for the plan of what they hold."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    async def plan_files(
        self, request: PlanFilesRequest, user: str, role: str = "user", asker: Asker = ADMIN
    ) -> PlanReply:
        check_files(request.files)
        texts = [(each.name, each.text) for each in request.files]
        made = await asyncio.to_thread(read_texts, texts, for_plan=True)
        question = PlanRequest(
            made.jobs,
            names=[Called(each.id, list(each.names)) for each in made.found],
            workflows=[each.spec for each in made.workflows],
        )
        reply = PlanReply([], [], [], 0)
        if question.specs or question.workflows:
            with refusals_at(made.found), workflow_refusals_at(made.workflows):
                reply = await self._plan(question, user, role, asker)
        warnings = [str(each) for each in made.warnings]
        warnings += [located(each, made.found) for each in reply.warnings]
        if made.topology is not None or made.queues:
            warnings.append(NOT_APPLIED)
        reply = with_incomplete(structs.replace(reply, warnings=warnings), made.incomplete)
        if not (reply.placements or reply.reasons):
            reply.warnings.append(NOTHING)
        return reply


def read_texts(texts: list[tuple[str, str]], *, for_plan: bool, strict: bool = False) -> Manifests:
    """What the files hold; of several errors, the others are told with the first."""
    try:
        return read(texts, for_plan=for_plan, strict=strict, documents_most=DOCUMENTS_MOST)
    except PhalanxError as error:
        others = [each.detail for each in getattr(error, "others", ())]
        error.detail = "; ".join([error.detail, *others][:ERRORS_MAX])
        raise
