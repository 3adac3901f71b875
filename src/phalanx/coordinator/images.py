"""How far images are that runners get ready, and whose output waits to be read, as their heartbeats tell.

Nothing of it is in the log.

That an attempt waits for its image is an event (`AttemptPreparing`); how much of it is there changes every second.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from phalanx.api.schema.jobs import JobView, TaskView, WhyReply
from phalanx.core.cluster.jobs import JobState
from phalanx.core.model.orders import AttemptKey
from phalanx.core.model.reason import output_unread
from phalanx.preview.reply import reason_view


class ImageProgress:
    """By attempt, what its runner said last."""

    def __init__(self) -> None:
        self._of: dict[str, dict[AttemptKey, str]] = {}  # by node
        self._unread: dict[
            str, frozenset[AttemptKey]
        ] = {}  # by node, those stopped until their output is read

    def told(
        self, node: str, preparing: Iterable[tuple[AttemptKey, str]], unread: Iterable[AttemptKey] = ()
    ) -> None:
        """A heartbeat."""
        if stopped := frozenset(unread):
            self._unread[node] = stopped
        else:
            self._unread.pop(node, None)
        if found := dict(preparing):
            self._of[node] = found
        else:
            self._of.pop(node, None)

    def gone(self, node: str) -> None:
        """Its runner is not connected any more."""
        self._of.pop(node, None)
        self._unread.pop(node, None)

    def clear(self) -> None:
        """The term is over: another coordinator receives the heartbeats."""
        self._of.clear()
        self._unread.clear()

    def noted(self, job: JobState, position: int, view: TaskView) -> TaskView:
        """A task with how far its image is, or that its output waits to be read."""
        if self._waits(job, position):
            return structs.replace(view, unread=True)
        text = self._text(job, position) if view.preparing else ""
        return structs.replace(view, preparing=text) if text else view

    def explained(self, job: JobState, position: int | None, reply: WhyReply) -> WhyReply:
        """Why a task has not started, with how far its image is; or that it is stopped until its output is read."""
        at = 0 if position is None and job.job.tasks == 1 else position
        said = reply.dominant
        if at is not None and said.code == "Running" and self._waits(job, at):
            return structs.replace(reply, dominant=reason_view(output_unread()))
        text = self._text(job, at) if at is not None and said.code == "Preparing" else ""
        return (
            structs.replace(reply, dominant=structs.replace(said, text=f"{said.text}: {text}"))
            if text
            else reply
        )

    def noted_job(self, job: JobState, view: JobView) -> JobView:
        """A job with how many of its tasks wait for their output to be read."""
        if not self._unread or not job.job.groups[0].command.attached:
            return view
        return structs.replace(view, unread=sum(self._waits(job, position) for position in job.live))

    def _waits(self, job: JobState, position: int) -> bool:
        attempt = job.live.get(position)
        return attempt is not None and attempt.key in self._unread.get(attempt.node, ())

    def _text(self, job: JobState, position: int) -> str:
        attempt = job.live.get(position)
        return "" if attempt is None else self._of.get(attempt.node, {}).get(attempt.key, "")
