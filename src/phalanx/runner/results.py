"""What a task gives as its result: JSON that it writes to the file named in its environment.

The file is the task's own: it may be a link, a pipe, a device, huge, no JSON, or one of another account, moved there.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from phalanx.core.model.json_depth import JSON_DEPTH_MAX, too_deep_at
from phalanx.core.model.orders import RESULT_FILE_BYTES_MAX
from phalanx.runner.artifacts import is_foreign
from phalanx.runner.log_files import LogPath, open_file


def read_result(path: LogPath, tasks: int = 1) -> tuple[str, str]:
    """The result as short JSON, and why there is none though the task wrote something; both empty if it did not.

    The answer of a program for several tasks may be as many times as large.
    """
    if not os.path.lexists(path):  # as of most tasks, and then this is all that it costs
        return "", ""
    try:
        file = open_file(path)
    except OSError as error:
        return "", f"its result cannot be read: {error.strerror}"
    try:
        if is_foreign(os.fstat(file), Path(path).parent.lstat().st_uid):
            return "", "its result cannot be read: it is another account's file"
        data = os.read(file, file_bytes_max(tasks) + 1)
    except OSError as error:
        return "", f"its result cannot be read: {error.strerror}"
    finally:
        os.close(file)
    return _checked(data, tasks) if data.strip() else ("", "")


def file_bytes_max(tasks: int) -> int:
    """The most bytes of the file, white space included."""
    return 2 * tasks * RESULT_FILE_BYTES_MAX


def too_large(size: int, most: int = RESULT_FILE_BYTES_MAX) -> str:
    return f"its result has {size} bytes without white space, at most {most} are kept"


def _checked(data: bytes, tasks: int) -> tuple[str, str]:
    if len(data) > (most := file_bytes_max(tasks)):
        return "", f"its result is over the limit of {most} bytes"
    try:
        msgspec.json.decode(data)
        short = msgspec.json.format(data, indent=-1)
    except RecursionError:
        return "", f"its result is nested more than {JSON_DEPTH_MAX} levels deep"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if re.search(rb"\b(NaN|Infinity)\b", data):
            return (
                "",
                "its result is not JSON, which has no NaN and no Infinity: write null or a text instead",
            )
        return "", f"its result is not JSON: {str(error)[:200]}"
    if (where := too_deep_at(short.decode())) is not None:
        return "", f"its result is nested more than {JSON_DEPTH_MAX} levels deep, at {where}"
    if tasks == 1 and len(short) > RESULT_FILE_BYTES_MAX:
        return "", too_large(len(short))
    return short.decode(), ""
