"""Calls of Python functions on their way between an `Executor`, the coordinator and the workers that serve them.

A call is bytes here: the pickled function, the pickled arguments, the pickled result. Nobody but the client and its
own workers unpickles them. The limits of all sizes are here as well.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

CALL_BYTES_MAX = 2 << 20  # of a function, and of the arguments of one call
RESULT_BYTES_MAX = 2 << 20
TEXT_MAX = 16 << 10  # of a traceback
BATCH_CALLS_MAX = 1000  # in one message
BATCH_BYTES = 512 << 10  # what a message is filled up to; one call may be larger
CALLS_BODY_BYTES_MAX = 8 << 20  # of a message as JSON, where bytes are base64
RETRIES_MAX = 100
POLL_S_MAX = 30.0
CALLS_FULL = "TooManyCalls"  # the reason why a user's calls are refused for now
EXECUTOR_TAG = "phalanx-executor"  # of a job of workers: whose calls they serve

Id = Annotated[int, Meta(ge=0, le=2**53)]
Short = Annotated[str, Meta(max_length=80)]
Pickled = Annotated[bytes, Meta(max_length=CALL_BYTES_MAX)]
PollS = Annotated[float, Meta(ge=0, le=POLL_S_MAX)]
Outcome = Literal["returned", "raised", "failed", "died"]
QueueWord = Literal["open", "full", "absent", "closed"]


class PostedCall(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One call: its number, which its executor never gives twice, and its arguments."""

    id: Id
    arguments: Pickled
    begun: bool = False  # a worker had it already, by a former queue, and may still run it


class CallBatch(Struct, forbid_unknown_fields=True):
    """Calls of one function. `digest` names the function; a worker that knows it is not sent its bytes again."""

    digest: Short
    calls: Annotated[list[PostedCall], Meta(max_length=BATCH_CALLS_MAX)]
    function: Pickled = b""
    retries: Annotated[int, Meta(ge=0, le=RETRIES_MAX)] = 3  # after the process of a call has died


class CallsRequest(Struct, forbid_unknown_fields=True):
    """From the client. `queue` is the one that it knows; empty: a new one, in place of any former."""

    python: Short  # of the client, such as 3.12
    queue: Short = ""
    batches: Annotated[list[CallBatch], Meta(max_length=BATCH_CALLS_MAX)] = []
    withdrawn: Annotated[list[Id], Meta(max_length=100_000)] = []


class CallsReply(Struct):
    """If `queue` is another than the one asked for, nothing was taken: the client sends all that is not finished."""

    queue: str
    accepted: int = 0  # of the calls, in their order; the others have to be sent again later
    withdrawn: list[int] = []  # these had not been given to a worker, and never will be


class ResultsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    queue: Short = ""
    after: Id = 0  # the last result that has arrived; it and those before are forgotten
    workers: Annotated[int, Meta(ge=-1)] = -1  # how many the client knows of; another number is told at once
    timeout_s: PollS = 10.0


class CallResult(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """How one call ended. `value` is what it returned or raised, `text` a traceback or what went wrong."""

    id: Id
    outcome: Outcome
    value: Annotated[bytes, Meta(max_length=RESULT_BYTES_MAX)] = b""
    text: Annotated[str, Meta(max_length=TEXT_MAX)] = ""
    code: Short = ""  # of what went wrong
    worker: Short = ""  # of a call that is given up: the task that had it last, such as 17.3


class ResultsReply(Struct, omit_defaults=True):
    """Results after the one asked for."""

    queue: str
    last: int = 0  # to be asked for after
    results: list[CallResult] = []
    taken: list[int] = []  # calls that a worker has now
    workers: int = 0
    silent: list[str] = []  # tasks whose workers have not been heard from, though they should run
    trouble: str = ""  # why workers are refused


class TakeRequest(Struct, forbid_unknown_fields=True):
    """From a worker: how many calls it wants at most, and which functions it knows."""

    task: Short
    attempt: Id
    python: Short
    number: Id = 0  # of this question; one with the same or a higher number ends the wait of this one
    received: Id = (
        0  # number of the last question whose answer arrived; calls in a later answer are taken back
    )
    want: Annotated[int, Meta(ge=1, le=BATCH_CALLS_MAX)] = 1
    known: Annotated[list[Short], Meta(max_length=64)] = []
    timeout_s: PollS = 10.0


class TakeReply(Struct, omit_defaults=True):
    state: QueueWord
    batches: list[CallBatch] = []


class GiveRequest(Struct, forbid_unknown_fields=True):
    """From a worker: results, and calls that it has not begun and gives back. Also its sign of life."""

    task: Short
    attempt: Id
    results: Annotated[list[CallResult], Meta(max_length=BATCH_CALLS_MAX)] = []
    returned: Annotated[list[Id], Meta(max_length=BATCH_CALLS_MAX)] = []
    holding: Annotated[list[Id], Meta(max_length=BATCH_CALLS_MAX)] = []  # told once to each queue


class GiveReply(Struct, omit_defaults=True):
    """Unless `state` is open, the results were not taken, and are to be sent again."""

    state: QueueWord
    queue: str = ""
