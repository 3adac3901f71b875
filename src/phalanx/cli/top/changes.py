"""What the keys change in the cluster: each change is asked about first, and the answer of the server is shown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from phalanx.api.schema.cluster import NodeView
from phalanx.api.schema.jobs import Counts, JobView, TaskView
from phalanx.cli.labels import label
from phalanx.cli.output import clean
from phalanx.cli.top.dialogs import AskReason, Confirm
from phalanx.core.model.amounts import plural
from phalanx.errors import PhalanxError

if TYPE_CHECKING:
    from phalanx.cli.top.app import TopApp

T = TypeVar("T")


class ConfirmedChanges:
    """Cancel, hold, release, pause and resume, drain and undrain."""

    def __init__(self, app: TopApp) -> None:
        self._app = app
        self._client = app.client

    def cancel(self, job: JobView) -> None:
        self._confirm(
            cancel_question(job),
            lambda: self._client.cancel(job.id),
            lambda reply: f"{label(job)} cancelled ({plural(reply.cancelled, 'task')})",
        )

    def hold_or_release(self, job: JobView) -> None:
        if job.held is not None:
            why = f" It is held: {job.held}." if job.held else ""
            self._confirm(
                f"Release job {label(job)} {job.name}?{why}",
                lambda: self._client.release(job.id),
                lambda view: f"{label(view)} released",
            )
            return
        self._ask(
            f"Hold job {label(job)} {job.name} of {job.user}? Nothing more of it starts, what runs goes on.",
            lambda reason: self._client.hold(job.id, reason),
            lambda view: f"{label(view)} held, {plural(view.counts.pending, 'task')} waiting",
            is_required=False,
        )

    def pause_or_resume(self, id: str) -> None:
        """Of one task. Whether it is paused is asked for first, because lists of devices do not say it."""
        self._app.run_worker(self._pause_or_resume(id), group="open", exclusive=True)

    async def _pause_or_resume(self, id: str) -> None:
        try:
            task = await self._client.task(id)
        except PhalanxError as error:
            self._app.say_error(error)
            return
        self.pause_or_resume_task(task)

    def pause_or_resume_task(self, task: TaskView) -> None:
        if task.paused:
            self._confirm(
                f"Resume {label(task)} {task.name}?",
                lambda: self._client.resume(task.id),
                lambda view: f"{label(view)} resumed",
            )
        else:
            self._confirm(
                f"Pause {label(task)} {task.name}? Its processes stop, what it holds stays allocated.",
                lambda: self._client.pause(task.id),
                lambda view: f"{label(view)} paused",
            )

    def drain(self, node: NodeView) -> None:
        self._ask(
            f"Drain {node.name}? Running tasks go on, nothing more starts.",
            lambda reason: self._client.drain(node.name, reason),
            lambda view: f"{view.name} drained; {plural(view.task_count, 'task')} still running there",
        )

    def undrain(self, node: NodeView) -> None:
        if node.status == "Online" and not (node.drained or node.elastic_disabled):
            self._app.say(f"{node.name} is not drained")
            return
        why = f" It was drained: {node.drain_reason or 'no reason given'}." if node.drained else ""
        self._confirm(
            f"Resume {node.name}?{why}",
            lambda: self._client.undrain(node.name),
            lambda view: f"{view.name} resumed, {view.status}",
        )

    def _confirm(self, question: str, call: Callable[[], Awaitable[T]], done: Callable[[T], str]) -> None:
        def answered(is_yes: bool | None) -> None:
            if is_yes:
                self._app.run_worker(self._change(call(), done), group="changes")

        self._app.push_screen(Confirm(clean(question)), answered)

    def _ask(
        self,
        question: str,
        call: Callable[[str], Awaitable[T]],
        done: Callable[[T], str],
        is_required: bool = True,
    ) -> None:
        def answered(reason: str | None) -> None:
            if reason is not None:
                self._app.run_worker(self._change(call(reason), done), group="changes")

        self._app.push_screen(AskReason(clean(question), is_required), answered)

    async def _change(self, call: Awaitable[T], done: Callable[[T], str]) -> None:
        """Carry out a change, and show what came of it: the server's own words if it refused."""
        try:
            self._app.say(done(await call))
        except PhalanxError as error:
            self._app.say_error(error)
        self._app.feed.hurry()


def cancel_question(job: JobView) -> str:
    """Names what is lost: whose job it is, how many of its tasks have not ended, and their GPUs."""
    parts = [(group.request.gpus, group.counts) for group in job.groups] or [(job.request.gpus, job.counts)]
    live, gpus = _live(job.counts), sum(each * _live(counts) for each, counts in parts)
    held = f", {plural(gpus, 'GPU')}" if gpus else ""
    tasks = f"{live} of {plural(job.tasks, 'task')}" if live < job.tasks else plural(job.tasks, "task")
    return f"Cancel job {label(job)} {job.name} of {job.user} ({tasks}{held})?"


def _live(counts: Counts) -> int:
    return counts.running + counts.assigned + counts.pending
