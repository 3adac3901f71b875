"""How far images are that runners get ready, as their heartbeats tell. Nothing of it is in the log.

That an attempt waits for its image is an event (`AttemptPreparing`); how much of it is there changes every second.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from phalanx.api.schema.jobs import TaskView, WhyReply
from phalanx.core.cluster.jobs import JobState
from phalanx.core.model.orders import AttemptKey


class ImageProgress:
    """By attempt, what its runner said last."""

    def __init__(self) -> None:
        self._of: dict[str, dict[AttemptKey, str]] = {}  # by node

    def told(self, node: str, preparing: Iterable[tuple[AttemptKey, str]]) -> None:
        """A heartbeat."""
        if found := dict(preparing):
            self._of[node] = found
        else:
            self._of.pop(node, None)

    def gone(self, node: str) -> None:
        """Its runner is not connected any more."""
        self._of.pop(node, None)

    def clear(self) -> None:
        """The term is over: another coordinator receives the heartbeats."""
        self._of.clear()

    def noted(self, job: JobState, position: int, view: TaskView) -> TaskView:
        """A task with how far its image is."""
        text = self._text(job, position) if view.preparing else ""
        return structs.replace(view, preparing=text) if text else view

    def explained(self, job: JobState, position: int | None, reply: WhyReply) -> WhyReply:
        """Why a task has not started, with how far its image is."""
        at = 0 if position is None and job.job.tasks == 1 else position
        said = reply.dominant
        text = self._text(job, at) if at is not None and said.code == "Preparing" else ""
        return (
            structs.replace(reply, dominant=structs.replace(said, text=f"{said.text}: {text}"))
            if text
            else reply
        )

    def _text(self, job: JobState, position: int) -> str:
        attempt = job.live.get(position)
        return "" if attempt is None else self._of.get(attempt.node, {}).get(attempt.key, "")
