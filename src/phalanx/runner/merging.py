"""Answers of programs for several tasks: taken apart here, so that each result may be as large as that of any task.

How many tasks a program may answer for is known from the order, and to a later runner from the keeper's memo. Results
that do not travel with the end go to the place for files (`endings.py`).
"""

from __future__ import annotations

import msgspec
from msgspec import Struct, structs

from phalanx.core.model.dispatch import MERGE_MAX
from phalanx.core.model.job import is_job_id
from phalanx.core.model.orders import RESULT_BYTES_MAX, RESULT_FILE_BYTES_MAX, Start
from phalanx.core.model.task_results import PartResult, taken_apart
from phalanx.core.runner.attempts import ProcessEnd
from phalanx.runner.results import too_large

TOGETHER_BYTES_MAX = 64 * 1024  # of all results of others that travel with one end


class _Memo(Struct):
    """What is in the keeper's memo beside the limits."""

    tasks: int = 0


def tasks_of(start: Start) -> int:
    """For how many tasks the program of an attempt may answer; 0: only for its own, in no particular form."""
    return 1 + len(msgspec.json.decode(start.merged, type=list[msgspec.Raw])) if start.merged else 0


def memo_with(memo: str, tasks: int) -> str:
    """The keeper's memo, with the number of tasks that the program may answer for."""
    if not tasks:
        return memo
    return msgspec.json.encode(msgspec.json.decode(memo or "{}") | {"tasks": tasks}).decode()


def tasks_in(memo: str) -> int:
    try:
        return min(msgspec.json.decode(memo, type=_Memo).tasks, MERGE_MAX) if memo else 0
    except msgspec.MsgspecError:
        return 0


def with_own_result(end: ProcessEnd) -> ProcessEnd:
    """The end of a program that may have answered for several tasks, with its own result and those of the others.

    A result of another task that is too large is left out: that one runs by itself, and is told so. So is one for a
    name that no job has: programs write the names, and the coordinator takes no message with any text in their place.
    """
    found = taken_apart(end.result)
    own, others = (end.result, {}) if found is None else found
    if (size := len(own.encode())) > RESULT_FILE_BYTES_MAX:
        return structs.replace(end, result="", result_error=too_large(size))
    parts = [PartResult(job, text) for job, text in others.items() if is_job_id(job) and _is_kept(text)]
    has_others = found is not None and not end.code
    return structs.replace(end, result=own, is_own=True, parts=tuple(parts[:MERGE_MAX]) if has_others else ())


def large_parts(parts: tuple[PartResult, ...]) -> set[str]:
    """The jobs whose results go to the place for files: those that are large, or too much together."""
    room, found = TOGETHER_BYTES_MAX, set[str]()
    for part in parts:
        size = len(part.result.encode())
        if size > min(RESULT_BYTES_MAX, room):
            found.add(part.job)
        else:
            room -= size
    return found


def _is_kept(text: str) -> bool:
    return len(text.encode()) <= RESULT_FILE_BYTES_MAX
