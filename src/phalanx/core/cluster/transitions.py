"""The legal moves of a task, as a table with a sentence for each. The diagram in the docs is drawn from it.

Two rules hold everything together. A task holds a grant exactly as long as one of its attempts is alive on
some node, whatever its status says. And Completed, Failed and Cancelled never change again.
"""

from __future__ import annotations

from phalanx.core.model.status import Status

PENDING, ASSIGNED, RUNNING = Status.PENDING, Status.ASSIGNED, Status.RUNNING
COMPLETED, FAILED, CANCELLED = Status.COMPLETED, Status.FAILED, Status.CANCELLED

MOVES: dict[tuple[Status, Status], str] = {
    (PENDING, ASSIGNED): "a plan gave it a node and a grant",
    (PENDING, CANCELLED): "the user cancelled it before it was placed",
    (ASSIGNED, RUNNING): "the runner confirmed the start",
    (ASSIGNED, PENDING): "the attempt failed with retries left, or its runner lost or returned it",
    (ASSIGNED, COMPLETED): "it ran and ended with code 0 before its start was reported",
    (ASSIGNED, FAILED): "the runner could not start it, or it failed with no retry left",
    (ASSIGNED, CANCELLED): "the user cancelled it; the runner is told never to start it",
    (RUNNING, PENDING): "the attempt failed with retries left, or its node was lost",
    (RUNNING, COMPLETED): "the process ended with code 0",
    (RUNNING, FAILED): "the process failed and no retry is left",
    (RUNNING, CANCELLED): "the user cancelled it; the runner is told to stop it",
}


class IllegalMove(AssertionError):
    """A move that is not in the table: a defect of ours."""

    def __init__(self, who: str, before: Status, after: Status) -> None:
        super().__init__(f"{who} cannot go from {before.word} to {after.word}")


def check_move(who: str, before: Status, after: Status) -> None:
    """Raise IllegalMove unless the table allows it."""
    if (before, after) not in MOVES:
        raise IllegalMove(who, before, after)


def diagram() -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", "    [*] --> Pending: accepted and durable"]
    lines += [f"    {before.word} --> {after.word}: {why}" for (before, after), why in MOVES.items()]
    lines += [f"    {status.word} --> [*]" for status in Status if status.is_final]
    return "\n".join(lines) + "\n"
