"""Answers of programs for several tasks: taken apart here, so that each result may be as large as that of any task.

How many tasks a program may answer for is known from the order, and to a later runner from the keeper's memo. Results
that do not travel with the end go to the place for files (`endings.py`). An answer may have megabytes: each result in
it is decoded by itself, so that a thread that does this never keeps the event loop waiting for long.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec
from msgspec import Struct, structs

from phalanx.core.model.dispatch import MERGE_MAX
from phalanx.core.model.job import is_job_id
from phalanx.core.model.json_depth import JSON_DEPTH_MAX
from phalanx.core.model.orders import RESULT_BYTES_MAX, Start
from phalanx.core.model.task_results import PartResult
from phalanx.core.runner.attempts import ProcessEnd
from phalanx.runner.log_files import LogPath
from phalanx.runner.results import BadResult, TaskResult, TooMuch, read_file, short_json, why_no_json

TOGETHER_BYTES_MAX = 64 * 1024  # of all results of others that travel with one end


class _MergedAnswer(Struct):
    """What a program for several tasks writes; each result as it stands there."""

    result: msgspec.Raw
    children: dict[str, msgspec.Raw]


_decode_answer = msgspec.json.Decoder(_MergedAnswer).decode


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


def read_result(path: LogPath, tasks: int) -> TaskResult:
    """What a task that has ended gave as its result. A thread may call it: it touches nothing but the file.

    `tasks` is for how many the program may answer; 0: only for its own, in no particular form.
    """
    try:
        data = read_file(path, tasks or 1)
        return found_in(data, tasks) if data else TaskResult()
    except BadResult as error:
        return TaskResult(error=str(error))


def found_in(data: bytes, tasks: int) -> TaskResult:
    """The result that was written, in an answer for several tasks or by itself; raises BadResult.

    A result of another task that is too large or nested too deep is left out: that one runs by itself, and is told so.
    So is one for a name that no job has: programs write the names, and the coordinator takes no message with any text
    in their place.
    """
    answer = _answer_in(data) if tasks else None
    if answer is None:
        return TaskResult(short_json(data), is_own=tasks > 0)
    own, parts = short_json(bytes(answer.result)), list[PartResult]()
    for job, written in answer.children.items():
        if is_job_id(job) and len(parts) < MERGE_MAX:
            with suppress(TooMuch):
                parts.append(PartResult(job, short_json(bytes(written))))
    return TaskResult(own, is_own=True, parts=tuple(parts))


def with_result(end: ProcessEnd, found: TaskResult) -> ProcessEnd:
    """The end of a program with what it wrote. One that failed answers for nobody else."""
    parts = () if end.code else found.parts
    return structs.replace(end, result=found.text, result_error=found.error, is_own=found.is_own, parts=parts)


def _answer_in(data: bytes) -> _MergedAnswer | None:
    """The answer for several tasks; None if it is none. Raises BadResult."""
    try:
        return _decode_answer(data)
    except msgspec.ValidationError:  # it has another form
        return None
    except RecursionError:
        raise BadResult(f"its result is nested more than {JSON_DEPTH_MAX} levels deep") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadResult(why_no_json(data, error)) from None


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
