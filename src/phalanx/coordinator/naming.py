"""What people call jobs, read into ids: numbers, `last`, names, and what Kubernetes calls them.

A number is the arrival of a job or workflow, and is looked up in memory and in the history. Names are each user's own:
one names his job of that name that has not ended, else his newest; several that have not ended are refused with their
numbers. Those of others are found where he has none, and never guessed between.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from typing import Literal

from phalanx.coordinator.numbers import number_of
from phalanx.coordinator.requests import Requests
from phalanx.core.cluster.dependencies import stage_without_job
from phalanx.core.cluster.image import decode_job
from phalanx.core.cluster.jobs import JobState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.workflow_image import decode_workflow, is_workflow
from phalanx.core.cluster.workflows import WorkflowState
from phalanx.core.model.job import LAST, JobId, is_job_id
from phalanx.errors import Conflict, NotFound
from phalanx.store.protocol import History, Store

Kind = Literal["job", "workflow"]
NAMESAKES_TOLD = 5
PAST_PAGE, PAST_MAX = 200, 1000  # of ended jobs that left memory, the newest are looked through for a name
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")
_TASK = re.compile(r"(.+)\.([0-9]{1,9})")
_ID_IN_TEXT = re.compile(r"(?<![0-9a-z])[0-9a-hjkmnp-tv-z]{26}(?![0-9a-z])")


def is_number(text: str) -> bool:
    """Whether this is the number of a job. What begins with 0 is the beginning of an id."""
    return _NUMBER.fullmatch(text) is not None


def in_numbers(state: ClusterState, text: str) -> str:
    """A sentence for people: the whole ids in it as numbers, as far as they are in memory."""
    return _ID_IN_TEXT.sub(lambda found: label(state, found[0]), text)


def label(state: ClusterState, id: JobId) -> str:
    """What people call a job or workflow: its number; a stage without a job is WORKFLOW:STAGE. Else its id."""
    if number := number_in(state, id):
        return str(number)
    stage = stage_without_job(state, id)
    return id if stage is None else stage.name


def number_in(state: ClusterState, id: JobId) -> int:
    """The number of a job or workflow in memory; 0 if it left, or has none."""
    job, flow = state.jobs.get(id), state.workflows.get(id)
    return job.arrival if job is not None else 0 if flow is None else flow.number


async def find_named(
    requests: Requests, store: Store, text: str, user: str, *, of_all: bool, kind: Kind = "job"
) -> str:
    """The id of a job, task, workflow or stage; what is none of our words is returned as it is.

    With `of_all` it may be another user's if he has none so called himself, and only one other has.
    """
    if "/" in text:
        return await _find_object(requests, text, user, of_all=of_all)
    found = await _found(requests, store, text, user, of_all=of_all, kind=kind)
    if found is None and not is_number(_base(text)) and await requests.catch_up():
        found = await _found(requests, store, text, user, of_all=of_all, kind=kind)
    return text if found is None else found


def _base(text: str) -> str:
    return text.partition(":")[0].partition(".")[0]


def namesakes(state: ClusterState, name: str, id: str) -> tuple[int, list[int]]:
    """The number of the job that was named by its name, and those of all jobs in memory that its user calls so."""
    job = state.jobs.get(id.partition(".")[0])
    if (
        job is None
        or not job.job.name
        or name not in {job.job.name, f"{job.job.name}.{id.partition('.')[2]}"}
    ):
        return 0, []
    own = state.names.of_user(job.job.user, job.job.name)
    return job.arrival, sorted(state.jobs[each].arrival for each in own)


async def _found(
    requests: Requests, store: Store, text: str, user: str, *, of_all: bool, kind: Kind
) -> str | None:
    """A whole text may be a name, with dots in it; else what follows the last dot may be the index of a task."""
    words, colon, stage = text.partition(":")
    if colon:
        flow = await _one(requests, store, words, user, of_all=of_all, kind="workflow")
        return None if flow is None else f"{flow}:{stage}"
    if (whole := await _one(requests, store, words, user, of_all=of_all, kind=kind)) is not None:
        return whole
    task = _TASK.fullmatch(words)
    job = None if task is None else await _one(requests, store, task[1], user, of_all=of_all, kind=kind)
    if job is None and is_number(_base(words)) and words.count(".") > 1:
        first, index, *_ = words.split(".")
        like = f"{first}.{index if index.isdecimal() else 1}"
        text = f"no task {words[:80]!r}: a task is named by its job and its index, such as {like[:80]}"
        raise NotFound(text, reason="TaskNotFound")
    if task is None and "." in words:
        if (named := await _stage(requests, store, words, user, of_all=of_all)) is not None:
            return named
        await _refuse_index(requests, store, words, user, of_all=of_all, kind=kind)
    return None if task is None or job is None else f"{job}.{task[2]}"


async def _stage(requests: Requests, store: Store, words: str, user: str, *, of_all: bool) -> str | None:
    """WORKFLOW:STAGE of what lists call the job of a stage, WORKFLOW.STAGE; both names may have dots."""
    parts = words.split(".")
    for at in range(len(parts) - 1, 0, -1):
        name, stage = ".".join(parts[:at]), ".".join(parts[at:])
        flow = await _one(requests, store, name, user, of_all=of_all, kind="workflow")
        known = None if flow is None else requests.state.workflows.get(flow)
        if known is not None and stage in {each.name for each in known.workflow.stages}:
            return f"{flow}:{stage}"
    return None


async def _refuse_index(
    requests: Requests, store: Store, words: str, user: str, *, of_all: bool, kind: Kind
) -> None:
    """Raise NotFound for what follows the name of a job and a dot, and is no index."""
    base = _base(words)
    if await _one(requests, store, base, user, of_all=of_all, kind=kind) is not None:
        text = f"no task {words[:80]!r}: name one task, by its index behind the dot"
        raise NotFound(text, reason="TaskNotFound", hint=f"such as {base[:80]}.1")


async def _one(
    requests: Requests, store: Store, word: str, user: str, *, of_all: bool, kind: Kind
) -> JobId | None:
    if is_job_id(word):
        return None
    if is_number(word):
        return await _numbered(requests, store, int(word))
    own = _Own(requests.state, user, kind)
    if word == LAST:
        found = own.newest(own.all()) or await _newest_past(
            store, user, kind, lambda _name: True, with_workflows=True
        )
        if found is None:
            raise NotFound(f"you have no {kind} yet", reason="JobNotFound")
        return found
    if (found := own.named(word)) is None and requests.state.with_prefix(word):
        return None
    found = found or await _newest_past(store, user, kind, lambda name: name == word)
    return found if found is not None or not of_all else _of_others(requests.state, word, kind)


async def _numbered(requests: Requests, store: Store, number: int) -> JobId:
    """By number: in memory, in the history, or in what a standby has not read yet."""
    for _ in range(2):
        if (id := requests.state.names.numbers.get(number)) is not None:
            return id
        past = await store.numbered(number)
        body = await store.history(past) if past else None
        if past and body is not None and number_of(History(past, body)) == number:
            return past
        if number <= requests.state.arrivals or not await requests.catch_up():
            break
    newest = requests.state.arrivals
    why = f"the newest is {newest}" if number > newest else "its record is not kept any more"
    raise NotFound(f"no job {number}: {why}", reason="JobNotFound", hint="phalanx ps --all lists them")


class _Own:
    """The jobs and workflows of one user in memory."""

    def __init__(self, state: ClusterState, user: str, kind: Kind, *, is_asker: bool = True) -> None:
        self._state, self._user, self._kind = state, user, kind
        self._whose = f"of your {kind}s" if is_asker else f"{kind}s of {user}"

    def all(self) -> Iterable[JobId]:
        """All that he submitted; where jobs are meant, workflows as well."""
        flows = (id for id, flow in self._state.workflows.items() if flow.workflow.user == self._user)
        return chain(self._state.names.all_of_user(self._user), flows) if self._kind == "job" else flows

    def named(self, name: str) -> JobId | None:
        """The one of this name that has not ended, else the newest. Workflows come after jobs, or alone."""
        found = self._called(name)
        live = [id for id in found if not self._thing(id).is_over]
        if len(live) > 1:
            raise _several(self._state, name, live, self._whose)
        return live[0] if live else self.newest(found)

    def newest_named(self, name: str) -> JobId | None:
        """The newest of this name, whether others have ended or not."""
        return self.newest(self._called(name))

    def _called(self, name: str) -> list[JobId]:
        jobs = list(self._state.names.of_user(self._user, name)) if self._kind == "job" else []
        return jobs or [
            id
            for id, flow in self._state.workflows.items()
            if flow.workflow.user == self._user and flow.workflow.name == name
        ]

    def newest(self, found: Iterable[JobId]) -> JobId | None:
        return max(found, key=lambda id: (_arrival(self._thing(id)), id), default=None)

    def _thing(self, id: JobId) -> JobState | WorkflowState:
        return self._state.jobs.get(id) or self._state.workflows[id]


def _arrival(thing: JobState | WorkflowState) -> int:
    return thing.arrival if isinstance(thing, JobState) else thing.number


def _several(state: ClusterState, name: str, ids: list[JobId], whose: str) -> Conflict:
    told = sorted(ids, key=lambda id: (len(label(state, id)), label(state, id)), reverse=True)
    more = ", …" if len(told) > NAMESAKES_TOLD else ""
    return Conflict(
        f"{len(told)} {whose} that have not ended are called {name[:80]!r}: "
        f"{', '.join(label(state, id) for id in told[:NAMESAKES_TOLD])}{more}",
        reason="AmbiguousName",
        hint=f"give the number; phalanx ps -n {name} lists them",
    )


async def _newest_past(
    store: Store, user: str, kind: Kind, fits: Callable[[str], bool], *, with_workflows: bool = False
) -> JobId | None:
    """The user's newest in the history, among the newest records of all."""
    before, seen = None, 0
    while seen < PAST_MAX and (page := await store.past(before, PAST_PAGE)):
        for record in page:
            is_flow = is_workflow(record.body)
            if is_flow != (kind == "workflow") and not (is_flow and with_workflows):
                continue
            job = decode_workflow(record.body).workflow if is_flow else decode_job(record.body).job
            if job.user == user and fits(job.name) and getattr(job, "workflow", None) is None:
                return record.job
        before, seen = page[-1].job, seen + len(page)
        await asyncio.sleep(0)  # others have their turn
    return None


def _of_others(state: ClusterState, name: str, kind: Kind) -> JobId | None:
    """Of the one other user who has a job of this name."""
    users = sorted(islice(_users_of(state, name, kind), NAMESAKES_TOLD + 1))
    if len(users) < 2:
        return _Own(state, users[0], kind, is_asker=False).named(name) if users else None
    told = [
        f"{label(state, found)} of {user}"
        for user in users
        if (found := _Own(state, user, kind, is_asker=False).newest_named(name))
    ]
    raise Conflict(
        f"several users have a {kind} called {name[:80]!r}: {', '.join(told[:NAMESAKES_TOLD])}",
        reason="AmbiguousName",
        hint="give the number",
    )


def of_another(state: ClusterState, name: str) -> JobState | None:
    """Somebody's newest job of this name, to tell who has one where it was asked for as one's own."""
    user = next(state.names.users_of(name), None)
    id = None if user is None else _Own(state, user, "job").newest_named(name)
    return None if id is None else state.jobs.get(id)


def _users_of(state: ClusterState, name: str, kind: Kind) -> Iterator[str]:
    """Who has a job, or a workflow, of this name."""
    if kind == "job":
        return state.names.users_of(name)
    return iter({flow.workflow.user for flow in state.workflows.values() if flow.workflow.name == name})


async def _find_object(requests: Requests, name: str, user: str, *, of_all: bool) -> str:
    """The id of the job or task of a user that Kubernetes calls so."""
    found = _named(requests.state, name, user, of_all=of_all)
    if found is None and await requests.catch_up():
        found = _named(requests.state, name, user, of_all=of_all)
    if found is None:
        whose = "no job or task" if of_all else "no job or task of yours"
        raise NotFound(
            f"{whose} is called {name[:80]!r}",
            reason="JobNotFound",
            hint="names are known of jobs that the coordinator has in memory; phalanx ps --all lists the ids of all",
        )
    return found


def _named(state: ClusterState, name: str, user: str, *, of_all: bool) -> str | None:
    if (own := _id_of(state, name, user)) is not None or not of_all:
        return own
    others = sorted(islice(state.names.objects.get(name, {}), NAMESAKES_TOLD + 1))
    if len(others) < 2:
        return _id_of(state, name, others[0]) if others else None
    told = [
        f"{in_numbers(state, _id_of(state, name, other) or '')} of {other}"
        for other in others[:NAMESAKES_TOLD]
    ]
    more = ", …" if len(others) > NAMESAKES_TOLD else ""
    raise Conflict(
        f"several users have something called {name[:80]!r}: {', '.join(told)}{more}",
        reason="AmbiguousName",
        hint="give the number",
    )


def _id_of(state: ClusterState, name: str, user: str) -> str | None:
    found = state.called(name, user)
    if found is None:
        return None
    job, position = found
    return job.job.id if position is None else job.job.task_id(position)
