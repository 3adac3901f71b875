"""The routes of sweeps: rows in pieces, failed tasks again, and a job again with changes."""

from __future__ import annotations

from phalanx.api.schema.submission import SubmitReply
from phalanx.api.schema.sweeps import ResubmitRequest, RetryTasksRequest, RowsPiece, RowsTaken
from phalanx.api.server.messages import HttpRequest, Response, json_reply
from phalanx.api.server.route import Route, Service
from phalanx.api.server.routes.jobs import join_key


async def rows(service: Service, http_request: HttpRequest) -> Response:
    return json_reply(await service.commands.take_rows(http_request.document, http_request.user))


async def retry(service: Service, http_request: HttpRequest) -> Response:
    request: RetryTasksRequest = http_request.document
    join_key(request, http_request)
    who = http_request.identity
    reply = await service.commands.retry(http_request.id, request, http_request.user, who.role)
    http_request.made = reply.task_ids
    return json_reply(reply, 202)


async def resubmit(service: Service, http_request: HttpRequest) -> Response:
    request: ResubmitRequest = http_request.document
    join_key(request, http_request)
    who = http_request.identity
    reply = await service.commands.resubmit(http_request.id, request, http_request.user, who.role)
    http_request.made = reply.task_ids
    return json_reply(reply, 202)


ROUTES = (
    Route(
        method="POST",
        path="/v1/rows",
        permission="submit",
        handler=rows,
        summary="Send a piece of the rows of a sweep; a job that is submitted with them names the upload in `rows`.",
        answer=RowsTaken,
        body=RowsPiece,
        is_traffic=True,
    ),
    Route(
        method="POST",
        path="/v1/jobs/{id}/retry",
        permission="control",
        handler=retry,
        summary="Run the failed tasks of your ended job again, as a job with their indexes; of `job.index`, that task.",
        answer=SubmitReply,
        status=202,
        body=RetryTasksRequest,
        header="Idempotency-Key",
        is_about_a_job=True,
        is_costly=True,
        is_heavy=True,
    ),
    Route(
        method="POST",
        path="/v1/jobs/{id}/resubmit",
        permission="control",
        handler=resubmit,
        summary="Submit your job once more, with changes.",
        answer=SubmitReply,
        status=202,
        body=ResubmitRequest,
        header="Idempotency-Key",
        is_about_a_job=True,
        is_costly=True,
    ),
)
