"""Where a task is, and why: the public words of a task's life.

`Status` has the words of Krishiv's table. `Why` is the closed list of reason codes that goes with a status; a
number so that an array of a million tasks keeps both in two bytes each.
"""

from __future__ import annotations

from enum import IntEnum


class Status(IntEnum):
    """A task's place in its life. The last three never change again."""

    PENDING = 0
    ASSIGNED = 1
    RUNNING = 2
    COMPLETED = 3
    FAILED = 4
    CANCELLED = 5

    @property
    def word(self) -> str:
        """The public spelling: Pending, Assigned, …"""
        return self.name.capitalize()

    @property
    def is_final(self) -> bool:
        return self >= Status.COMPLETED


class Why(IntEnum):
    """Why an attempt ended, or why its task is where it is."""

    NONE = 0
    EXITED = 1  # the process ended with a code other than 0
    SIGNALLED = 2  # the process was ended by a signal nobody of ours sent
    OOM = 3  # the kernel ended it for using more memory than it was granted
    TIMEOUT = 4  # its time limit passed
    CANCELLED = 5  # the user cancelled it
    LOST = 6  # its node fell silent, or its runner no longer knows it
    UNCONFIRMED = 7  # its runner never confirmed the start
    REFUSED = 8  # the runner could not start it: no such program, no such folder
    FENCED = 9  # the runner stopped it because it had lost touch with the coordinator
    RETURNED = 10  # the runner gave it back unstarted, so that another node may take it
    STUCK = 11  # it waited longer than a pending task may
    EVICTED = 12  # a plan took its place for something more urgent
    UNKNOWN = 13  # the process is gone and nobody saw its exit code
    RECALLED = 14  # its gang could not start whole, so it gave its place back before it ran
    RESTARTED = 15  # another task of its job failed, and all start anew
    JOB_FAILED = 16  # another task of its job failed, and with it the job
    JOB_DONE = 17  # its job had done its work without it
    EXHAUSTED = 18  # its node had no processes, memory, descriptors or disk left to start it with

    @property
    def word(self) -> str:
        return self.name.lower()


UNCHARGED = frozenset(
    {
        Why.LOST,
        Why.UNCONFIRMED,
        Why.FENCED,
        Why.RETURNED,
        Why.EVICTED,
        Why.UNKNOWN,
        Why.RECALLED,
        Why.RESTARTED,
        Why.EXHAUSTED,
    }
)
"""Ends that are not the task's doing. They use up no retry; losses have a limit of their own."""
