"""Fake of the Python client for tests of the command line: views from lists, and what a command printed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from phalanx.api.schema.apply import AppliedJob, ApplyReply, ApplyRequest
from phalanx.api.schema.cluster import ClusterView, DeviceView, NodeView, NumaView, RemovedNode, TokenView
from phalanx.api.schema.jobs import (
    CancelReply,
    Counts,
    EvictReply,
    GangView,
    GroupView,
    JobReason,
    JobView,
    NamedView,
    Page,
    ReasonView,
    RequestView,
    StoryLine,
    TaskView,
    WatchEvent,
    WhyReply,
)
from phalanx.api.schema.log_times import LogTimesView
from phalanx.api.schema.queues import QueueView, QuotaSpec, QuotaView, UsageView
from phalanx.api.schema.submission import AcceptedTask, SubmitReply, SubmitRequest
from phalanx.client.log_calls import LogPiece
from phalanx.errors import BadRequest, Conflict, NotFound, PhalanxError

ID = "01hzx5k3m9qwertyasdfghzxcv"


class CliResult(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str


Cli = Callable[..., CliResult]


def a_job(id: str = ID, status: Any = "Running", **fields: Any) -> JobView:
    job = JobView(
        id=id,
        batch_id=id,
        name="train",
        user="ada",
        queue="default",
        priority=0,
        status=status,
        reason="",
        tasks=1,
        counts=Counts(),
        command=["python", "train.py"],
        request=RequestView(cores=1),
        array=None,
        submitted_at=1000.0,
        started_at=1001.0,
        ended_at=None,
        exit_code=None,
        time_limit_s=None,
        max_retries=3,
    )
    return replace(job, **fields)


def a_gang(id: str = ID, status: Any = "Running", **fields: Any) -> JobView:
    """Four members, all of them running, unless the fields of the gang or the job say otherwise."""
    gang = GangView(
        phase="Running",
        placed=4,
        needed=4,
        strict=True,
        match="once-satisfied",
        wait_s=60.0,
        gather=[],
        id="",
        formations=1,
        formation=None,
        promise=None,
    )
    about = {name: fields.pop(name) for name in list(fields) if name in GangView.__struct_fields__}
    counts = fields.pop("counts", Counts(running=4))
    group = GroupView("workers", 4, 4, 1, 0, counts, ["torchrun", "train.py"], RequestView(8, gpus=8), [])
    return a_job(
        id,
        status,
        **{
            "tasks": 4,
            "counts": counts,
            "groups": [group],
            "gang": replace(gang, **about),
            "restart_limit": 3,
        }
        | fields,
    )


def a_queue(name: str = "default", **fields: Any) -> QueueView:
    queue = QueueView(name, QuotaView(None, 64, 1 << 40, 8), UsageView(2, 16, 1 << 30, 4), 3)
    return replace(queue, **fields)


def a_task(id: str = ID, status: Any = "Running", **fields: Any) -> TaskView:
    task = TaskView(
        id=id,
        job_id=id.partition(".")[0],
        batch_id=id.partition(".")[0],
        name="train",
        index=None,
        status=status,
        reason="",
        message="",
        exit_code=None,
        attempt=1,
        node="n1",
        devices=[],
        target=None,
        target_numa_node_id=None,
        paused=False,
        retries_used=0,
        losses=0,
        retry_at=None,
        submitted_at=1000.0,
        started_at=1001.0,
        ended_at=None,
        stderr_tail="",
    )
    return replace(task, **fields)


def a_node(name: str = "n1", **fields: Any) -> NodeView:
    node = NodeView(
        name=name,
        status="Online",
        drained=False,
        drain_reason="",
        cores=8,
        cores_free=6,
        memory_bytes=16 << 30,
        memory_free_bytes=8 << 30,
        numa=[NumaView(0, 8, 6)],
        devices=[DeviceView(0, "h100", 80 << 30, task=ID), DeviceView(1, "h100", 80 << 30)],
        labels={"rack": "r1"},
        tasks=[ID],
        task_count=1,
        incarnation="abc",
        last_seen_at=1000.0,
    )
    return replace(node, **fields)


def a_why(**fields: Any) -> WhyReply:
    reply = WhyReply(
        id=ID,
        status="Pending",
        dominant=ReasonView("WaitingCapacity", "capacity", "4 GPUs needed, 2 free"),
        others=[],
        nodes=[],
        fix=None,
        position=None,
        waiting=0,
        at=1000.0,
        epoch=1,
    )
    return replace(reply, **fields)


class FakeClient:
    """A client whose cluster is a few lists. `asked` remembers every call."""

    def __init__(self, *jobs: JobView) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.held = list(jobs)
        self.me = "ada"  # whose token it is
        self.kept_tasks: list[TaskView] = []
        self.machines: list[NodeView] = [a_node()]
        self.ends: list[JobView | TaskView] = []  # what `wait` answers, one after another; the last stays
        self.output: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        self.times = LogTimesView(1, "n1", 1000.0, False)
        self.array = ""  # the id of a job with several tasks, when logs are asked for
        self.lines: list[StoryLine] = []
        self.credentials: list[TokenView] = []
        self.events: list[WatchEvent] = []
        self.answer: Any = None
        self.is_held = False  # what is resumed
        self.error: BaseException | None = None

    def _note(self, *call: Any) -> None:
        self.asked.append(call)
        if self.error is not None:
            raise self.error

    def submit(self, request: SubmitRequest, *, export: str | None = None) -> SubmitReply:
        """The environment of the test is not asked about."""
        assert export == "NONE"
        self._note("submit", replace(request, exported={}))
        return self.answer or SubmitReply([ID], ID, [AcceptedTask(ID)])

    def plan(self, request: Any) -> Any:
        self._note("plan", request)
        return self.answer

    def topology(self) -> Any:
        self._note("topology")
        return self.answer

    def jobs(self, **asked: Any) -> Page[JobView]:
        self._note("jobs", asked)
        fits = [job for job in self.held if asked.get("status") in (None, job.status)]
        if asked.get("mine"):
            fits = [job for job in fits if job.user == self.me]
        return self._page(fits, asked)

    def tasks(self, job: str, **asked: Any) -> Page[TaskView]:
        self._note("tasks", job, asked)
        return self._page(
            [task for task in self.kept_tasks if asked.get("status") in (None, task.status)], asked
        )

    def story(self, id: str, of: str | None = None, **asked: Any) -> Page[StoryLine]:
        self._note("story", id, of)
        if of is None and id != ID:
            raise NotFound(f"no job {id}")
        cursor, limit = asked["cursor"], asked["limit"]
        if not (cursor or "").startswith(("newest", "-")):
            return self._page(self.lines, asked)
        before = [line for line in self.lines if cursor == "newest" or line.revision < -int(cursor)]
        newest = before[-limit:]
        return Page(newest, f"-{newest[0].revision}" if len(before) > limit else None)

    def _page(self, items: list[Any], asked: dict[str, Any]) -> Page[Any]:
        begin, size = int(asked.get("cursor") or 0), asked["limit"]
        end = begin + size
        return Page(items[begin:end], str(end) if end < len(items) else None)

    def named(self, name: str, *, own: bool = False) -> NamedView:
        raise NotFound(f"nothing is called {name}", reason="JobNotFound")

    def job(self, id: str) -> JobView:
        self._note("job", id)
        return self._found(self.held, id)

    def task(self, id: str) -> TaskView:
        self._note("task", id)
        return self._found(self.kept_tasks, id)

    def _found(self, items: list[Any], id: str) -> Any:
        for item in items:
            if item.id.startswith(id):
                return item
        raise NotFound(f"no job {id}", hint="phalanx ps lists them")

    def wait(self, id: str, timeout: float | None = None, *, must_end: bool = True) -> JobView | TaskView:
        self._note("wait", id, timeout)
        return self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]

    def cancel(self, id: str) -> CancelReply:
        self._note("cancel", id)
        return CancelReply(self._found(self.held, id).id, 1, 1)

    def evict(self, id: str) -> EvictReply:
        self._note("evict", id)
        return EvictReply(self._found(self.held, id).id, 4)

    def apply(self, request: ApplyRequest) -> ApplyReply:
        self._note("apply", request)
        return self.answer or ApplyReply([AppliedJob(ID, each.name, 4) for each in request.specs])

    def tokens(self) -> list[TokenView]:
        self._note("tokens")
        return self.credentials

    def revoke_token(self, id: str) -> TokenView:
        self._note("revoke_token", id)
        found: TokenView = self._found(self.credentials, id)
        return found

    def queues(self) -> list[QueueView]:
        self._note("queues")
        return [a_queue(), a_queue("lab", quota=None)]

    def queue(self, name: str) -> QueueView:
        self._note("queue", name)
        return a_queue(name)

    def set_quota(self, name: str, quota: QuotaSpec | None) -> QueueView:
        self._note("set_quota", name, quota)
        return a_queue(name) if quota else a_queue(name, quota=None)

    def pause(self, id: str) -> TaskView:
        self._note("pause", id)
        return a_task(id, paused=True)

    def resume(self, id: str) -> TaskView:
        self._note("resume", id)
        if self.is_held:
            raise Conflict(f"{id} is held back as a whole", reason="Held")
        return a_task(id)

    def release(self, id: str) -> JobView:
        self._note("release", id)
        return self._found(self.held, id.partition(".")[0])

    def reasons(self, ids: Sequence[str]) -> list[JobReason]:
        self._note("reasons", list(ids))
        return [JobReason(id, a_why().dominant) for id in ids]

    def why(self, id: str) -> WhyReply:
        self._note("why", id)
        if any(node.name == id for node in self.machines) or id == "nosuch":
            raise NotFound(f"no job {id}")
        reply: WhyReply = self.answer or a_why()
        return reply

    def nodes(self) -> list[NodeView]:
        self._note("nodes")
        return self.machines

    def node(self, name: str) -> NodeView:
        self._note("node", name)
        if not self.machines:
            raise NotFound(f"no node {name}")
        return self.machines[0]

    def drain(self, name: str, reason: str, *, evict: bool = False) -> NodeView:
        self._note("drain", name, reason, *(["evict"] if evict else []))
        return a_node(name, drained=True, drain_reason=reason)

    def set_elastic(self, name: str, *, enabled: bool, reason: str = "") -> NodeView:
        self._note("set_elastic", name, enabled, reason)
        by = f"by ada: {reason}" if reason else "by ada"
        return a_node(name, elastic_disabled=not enabled, disabled_reason="" if enabled else by, task_count=2)

    def lose(self, name: str, reason: str) -> NodeView:
        self._note("lose", name, reason)
        return a_node(name)

    def remove_node(self, name: str) -> RemovedNode:
        self._note("remove", name)
        return RemovedNode(name)

    def undrain(self, name: str) -> NodeView:
        self._note("undrain", name)
        return a_node(name)

    def cluster(self) -> ClusterView:
        self._note("cluster")
        return ClusterView("0.1.0", 3, 42, 2, 1, 16, 12, 4, 2, 5, Counts(pending=7, running=2))

    def logs(self, id: str, **asked: Any) -> Iterator[bytes]:
        self._note("logs", id, asked)
        return iter(self.output[asked.get("stream", "stdout")])

    def log_pieces(self, id: str, **asked: Any) -> Iterator[LogPiece]:
        offset = asked.get("offset") or 0
        skipped = offset
        for data in self.logs(id, **asked):
            skipped, rest = max(0, skipped - len(data)), data[skipped:]
            yield LogPiece(offset, rest, asked["attempt"] or 1)
            offset += len(rest)

    def log_times(self, id: str, *, attempt: int | None = None, after: float = 0.0) -> LogTimesView:
        if id == self.array:
            raise BadRequest(f"{id} has tasks", reason="IsArray")
        return replace(self.times, attempt=attempt or self.times.attempt)

    def watch(self, **asked: Any) -> Iterator[WatchEvent]:
        self._note("watch", asked)
        return iter(self.events)

    def verbs(self) -> list[str]:
        return [call[0] for call in self.asked]


def ended_badly(error: type[PhalanxError]) -> PhalanxError:
    return error("it did not work", hint="try something else")
