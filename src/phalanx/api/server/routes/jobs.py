"""The routes of jobs: submit, list, show, cancel, evict, wait, why, story; and what of a job an asker may see.

Every user sees its name and state. The values of its environment and its tasks' output are only for users who may
inspect it.
"""

from __future__ import annotations

from msgspec import structs

from phalanx.api.schema.apply import ApplyRequest, DraftView
from phalanx.api.schema.fields import shown
from phalanx.api.schema.jobs import (
    CancelReply,
    EnvironmentView,
    EvictReply,
    JobReason,
    JobView,
    NamedView,
    Page,
    ReasonView,
    StoryLine,
    TaskView,
    WhyReply,
)
from phalanx.api.schema.queries import (
    JobsQuery,
    NamesQuery,
    ReasonsQuery,
    StoryQuery,
    TasksQuery,
    WaitQuery,
    WhyQuery,
)
from phalanx.api.schema.submission import SubmitReply, SubmitRequest
from phalanx.api.schema.sweeps import ResubmitRequest, RetryTasksRequest
from phalanx.api.schema.vps import VpsRequest
from phalanx.api.schema.workflow_files import WorkflowFilesRequest
from phalanx.api.schema.workflows import WorkflowRequest
from phalanx.api.server.messages import HttpRequest, Response, json_reply
from phalanx.api.server.route import Route, Service
from phalanx.core.explain.change import Asker
from phalanx.core.model.job import is_job_id
from phalanx.errors import BadRequest

HIDDEN = "(hidden)"
REASONS_MAX = 100  # jobs of one question


def seen_job(http_request: HttpRequest, view: JobView) -> JobView:
    """The job as this visitor may see it. In the command of a stage there may be values of others' results."""
    is_bare = not (view.env or view.exported or view.workflow or view.params)
    if is_bare or http_request.identity.may("inspect", view.id, view.user):
        return view
    hidden = {name: dict.fromkeys(getattr(view, name), HIDDEN) for name in ("env", "params")}
    view = structs.replace(view, exported=[], **hidden)
    if not view.workflow:
        return view
    written = view.written or [HIDDEN]
    commands = [written] + [[HIDDEN]] * (len(view.groups) - 1)
    groups = [
        structs.replace(group, command=command) for group, command in zip(view.groups, commands, strict=False)
    ]
    return structs.replace(view, command=written, groups=groups)


def seen_task(http_request: HttpRequest, view: TaskView) -> TaskView:
    """The task as this visitor may see it; whose job it is has been asked before."""
    return (
        view if http_request.is_inspector else structs.replace(view, stderr_tail="", result=None, params={})
    )


def seen(http_request: HttpRequest, view: JobView | TaskView) -> JobView | TaskView:
    return seen_job(http_request, view) if isinstance(view, JobView) else seen_task(http_request, view)


async def submit(service: Service, http_request: HttpRequest) -> Response:
    request: SubmitRequest = http_request.document
    join_key(request, http_request)
    reply = await service.commands.submit(request, http_request.user, http_request.identity.role)
    http_request.made = reply.task_ids
    return json_reply(reply, 202)


async def jobs(service: Service, http_request: HttpRequest) -> Response:
    page = await service.commands.jobs(http_request.query, http_request.user)
    page.items = [seen_job(http_request, view) for view in page.items]
    return json_reply(page)


async def job(service: Service, http_request: HttpRequest) -> Response:
    view = await service.commands.job(http_request.id, http_request.identity.asker)
    return json_reply(seen_job(http_request, view))


async def environment(service: Service, http_request: HttpRequest) -> Response:
    return json_reply(await service.commands.environment(http_request.id))


async def named(service: Service, http_request: HttpRequest) -> Response:
    query: NamesQuery = http_request.query
    found = await service.id_named(http_request, http_request.id, own=query.own)
    if not is_job_id(found[:26]):  # the beginning of an id, or nothing
        first = found.partition(":")[0].partition(".")[0]
        found = (await service.commands.owner(first))[0] + found[len(first) :]
    number, namesakes = service.commands.namesakes(http_request.id, found)
    return json_reply(NamedView(http_request.id, found, number, namesakes))


async def reasons(service: Service, http_request: HttpRequest) -> Response:
    query: ReasonsQuery = http_request.query
    ids = list(filter(None, query.jobs.split(",")))
    if (wrong := next((id for id in ids if not (is_job_id(id) or id.isdecimal())), None)) is not None:
        raise BadRequest(f"jobs: {shown(wrong)} is neither the number nor the id of a job")
    if len(ids) > REASONS_MAX:
        raise BadRequest(
            f"jobs: {len(ids)} are too many for one question, at most {REASONS_MAX}", reason="TooMany"
        )
    return json_reply(await service.commands.reasons(ids))


async def draft(service: Service, http_request: HttpRequest) -> Response:
    return json_reply(await service.commands.draft(http_request.id))


async def tasks(service: Service, http_request: HttpRequest) -> Response:
    query: TasksQuery = http_request.query
    page = await service.commands.tasks(
        http_request.id, status=query.status, selector=query.selector, cursor=query.cursor, limit=query.limit
    )
    page.items = [seen_task(http_request, view) for view in page.items]
    return json_reply(page)


async def cancel(service: Service, http_request: HttpRequest) -> Response:
    return json_reply(await service.commands.cancel(http_request.id, http_request.user))


async def evict(service: Service, http_request: HttpRequest) -> Response:
    return json_reply(await service.commands.evict(http_request.id, http_request.user))


async def why(service: Service, http_request: HttpRequest) -> Response:
    reply = await service.commands.why(http_request.id, http_request.identity.asker)
    return json_reply(_in_numbers(service, reply))


async def job_why(service: Service, http_request: HttpRequest) -> Response:
    asker, query = http_request.identity.asker, http_request.query
    reply = await service.commands.why(http_request.id, asker, of_waiting=query.waiting)
    return json_reply(_in_numbers(service, reply))


def asker_of(http_request: HttpRequest) -> Asker:
    """What an explanation depends on: it offers what its asker may do, and of no other user's things."""
    return http_request.identity.asker


def _in_numbers(service: Service, reply: WhyReply) -> WhyReply:
    """The sentences with numbers for the ids in them."""
    told = service.commands.in_numbers

    def told_reason(view: ReasonView) -> ReasonView:
        return structs.replace(view, text=told(view.text))

    fix = reply.fix
    return structs.replace(
        reply,
        dominant=told_reason(reply.dominant),
        others=[told_reason(each) for each in reply.others],
        nodes=[structs.replace(each, reason=told_reason(each.reason)) for each in reply.nodes],
        fix=fix and structs.replace(fix, text=told(fix.text), command=told(fix.command)),
    )


async def story(service: Service, http_request: HttpRequest) -> Response:
    query: StoryQuery = http_request.query
    page = await service.commands.story(
        http_request.id, cursor=query.cursor, limit=query.limit, inspects=http_request.is_inspector
    )
    told = service.commands.in_numbers
    page.items = [structs.replace(line, text=told(line.text), cause=told(line.cause)) for line in page.items]
    return json_reply(page)


async def wait(service: Service, http_request: HttpRequest) -> Response:
    view = await waited(service, http_request)
    if isinstance(view, TaskView):  # the id was that of one task of an array
        view = await service.commands.job(view.job_id)
    return json_reply(seen(http_request, view))


async def waited(service: Service, http_request: HttpRequest) -> JobView | TaskView:
    query: WaitQuery = http_request.query
    with service.waits.taken(http_request):
        return await service.commands.wait(http_request.id, query.timeout_s)


def join_key(
    request: SubmitRequest
    | ApplyRequest
    | WorkflowRequest
    | WorkflowFilesRequest
    | VpsRequest
    | RetryTasksRequest
    | ResubmitRequest,
    http_request: HttpRequest,
) -> None:
    """Take the header Idempotency-Key for the request's id."""
    header = http_request.headers.get(b"idempotency-key")
    if header is None:
        return
    key = header.decode("latin-1")
    if request.request_id not in (None, key):
        raise BadRequest(
            "request_id and the header Idempotency-Key differ: they mean the same, give only one of them"
        )
    request.request_id = key


ROUTES = (
    Route(
        method="POST",
        path="/v1/jobs",
        permission="submit",
        handler=submit,
        summary="Submit a job. The answer is sent once it is durable.",
        answer=SubmitReply,
        status=202,
        body=SubmitRequest,
        header="Idempotency-Key",
        is_costly=True,
    ),
    Route(
        method="GET",
        path="/v1/jobs",
        permission="read",
        handler=jobs,
        summary="Jobs, newest first.",
        answer=Page[JobView],
        query=JobsQuery,
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}",
        permission="follow",
        handler=job,
        summary="One job.",
        answer=JobView,
        is_about_a_job=True,
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/draft",
        permission="inspect",
        handler=draft,
        summary="A gang that waits for members: what is missing and what has been applied so far.",
        answer=DraftView,
        is_about_a_job=True,
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/environment",
        permission="inspect",
        handler=environment,
        summary="The variables a job was submitted with, and their values.",
        answer=EnvironmentView,
        is_about_a_job=True,
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/tasks",
        permission="follow",
        handler=tasks,
        summary="The tasks of a job.",
        answer=Page[TaskView],
        query=TasksQuery,
        is_about_a_job=True,
    ),
    Route(
        method="POST",
        path="/v1/jobs/{id}/cancel",
        permission="control",
        handler=cancel,
        summary="Cancel all tasks of a job.",
        answer=CancelReply,
        is_about_a_job=True,
    ),
    Route(
        method="POST",
        path="/v1/jobs/{id}/evict",
        permission="control",
        handler=evict,
        summary="Preempt a job's tasks; its restart policy decides what follows.",
        answer=EvictReply,
        is_about_a_job=True,
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/why",
        permission="read",
        handler=job_why,
        summary="Explain a job's state: the reasons and a fix that would work.",
        answer=WhyReply,
        query=WhyQuery,
        sees=asker_of,
        is_about_a_job=True,
        is_costly=True,
        is_heavy=True,
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/story",
        permission="follow",
        handler=story,
        summary="The event history of a job.",
        answer=Page[StoryLine],
        query=StoryQuery,
        is_about_a_job=True,
    ),
    Route(
        method="GET",
        path="/v1/jobs/{id}/wait",
        permission="follow",
        handler=wait,
        summary="Wait until the job ends or the timeout passes, and return its state.",
        answer=JobView,
        query=WaitQuery,
        lasting=True,
        is_about_a_job=True,
    ),
    Route(
        method="GET",
        path="/v1/reasons",
        permission="read",
        handler=reasons,
        summary="The first reason of each of several waiting jobs; what does not wait, or takes too long, is left out.",
        answer=list[JobReason],
        query=ReasonsQuery,
        is_costly=True,
        is_heavy=True,
    ),
    Route(
        method="GET",
        path="/v1/names/{id}",
        permission="read",
        handler=named,
        summary="The id of a job, task or workflow of yours by its number, `last`, its name, or what "
        "Kubernetes calls it: namespace/name, with its slash quoted (%2F). "
        "If you have none of that name, another user's is found, unless own is true (what Kubernetes calls it: for "
        "operators and admins); 409 if several have one.",
        answer=NamedView,
        query=NamesQuery,
    ),
)
