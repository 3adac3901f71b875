"""What a task gives as its result: JSON that it writes to the file named in its environment.

The file is the task's own: it may be a link, a pipe, a device, huge, no JSON, or one of another account, moved there.
Answers for several tasks are read in `merging.py`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec
from msgspec import Struct

from phalanx.core.model.json_depth import JSON_DEPTH_MAX, too_deep_at
from phalanx.core.model.orders import RESULT_FILE_BYTES_MAX
from phalanx.core.model.task_results import PartResult
from phalanx.runner.artifacts import is_foreign
from phalanx.runner.log_files import LogPath, open_file


class TaskResult(Struct, frozen=True):
    """The result as short JSON, or why there is none though the task wrote something; neither if it did not.

    `is_own`: it was looked for in an answer for several tasks, and `parts` are the results of the others.
    """

    text: str = ""
    error: str = ""
    is_own: bool = False
    parts: tuple[PartResult, ...] = ()


class BadResult(ValueError):
    """What was written is no result; the text says why."""


class TooMuch(BadResult):
    """It is JSON, but too long or nested too deep."""


def file_bytes(path: LogPath) -> int:
    """How long the file is that a task may have written; 0 if there is none."""
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def read_file(path: LogPath, tasks: int = 1) -> bytes:
    """What a task wrote, mostly nothing; raises BadResult.

    The answer of a program for several tasks may be as many times as long.
    """
    if not os.path.lexists(path):  # as of most tasks, and then this is all that it costs
        return b""
    try:
        file = open_file(path)
    except OSError as error:
        raise BadResult(f"its result cannot be read: {error.strerror}") from None
    try:
        if is_foreign(os.fstat(file), Path(path).parent.lstat().st_uid):
            raise BadResult("its result cannot be read: it is another account's file")
        data = os.read(file, (most := file_bytes_max(tasks)) + 1)
    except OSError as error:
        raise BadResult(f"its result cannot be read: {error.strerror}") from None
    finally:
        os.close(file)
    if len(data) > most:
        raise BadResult(f"its result is over the limit of {most} bytes")
    return data if data.strip() else b""


def file_bytes_max(tasks: int) -> int:
    """The most bytes of the file, white space included."""
    return 2 * tasks * RESULT_FILE_BYTES_MAX


def short_json(data: bytes) -> str:
    """The same JSON without white space, as results are kept; raises BadResult, or TooMuch."""
    try:
        short = msgspec.json.format(data, indent=-1)
        if len(short) > RESULT_FILE_BYTES_MAX:  # before more is done with it
            text = f"its result has {len(short)} bytes without white space"
            raise TooMuch(f"{text}, at most {RESULT_FILE_BYTES_MAX} are kept")
        msgspec.json.decode(short)
        text = short.decode()
    except RecursionError:
        raise TooMuch(f"its result is nested more than {JSON_DEPTH_MAX} levels deep") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadResult(why_no_json(data, error)) from None
    if (where := too_deep_at(text)) is not None:
        raise TooMuch(f"its result is nested more than {JSON_DEPTH_MAX} levels deep, at {where}")
    return text


def why_no_json(data: bytes, error: Exception) -> str:
    if re.search(rb"\b(NaN|Infinity)\b", data):
        return "its result is not JSON, which has no NaN and no Infinity: write null or a text instead"
    return f"its result is not JSON: {str(error)[:200]}"
