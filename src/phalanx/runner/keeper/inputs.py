"""Standard input of attempts that have one: a pipe whose write end the keeper holds open.

The runner writes into it, by a descriptor of its own that it opens by way of the keeper's. While the keeper holds its
end, nothing that happens to the runner or to the client looks to the task like the end of its input. A pipe without a
name, because /dev/stdin of a task must open also when there is no writer any more.
"""

from __future__ import annotations

import os

from .programs import EXHAUSTED, SpawnRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .attempt import KeptAttempt


def open_input(attempt: KeptAttempt) -> int:
    """Make the pipe; its read end, which is for the task."""
    try:
        reader, writer = os.pipe2(os.O_CLOEXEC)
    except OSError as error:
        code = "exhausted" if error.errno in EXHAUSTED else "spawn_failed"
        raise SpawnRefused(code, f"cannot make its standard input: {error.strerror}") from None
    attempt.input = writer, os.fstat(writer).st_ino
    if attempt.account is not None:  # it may open it once more, by /dev/stdin
        os.fchown(reader, attempt.account.uid, attempt.account.gid)
    return reader


def close_input(attempt: KeptAttempt) -> None:
    """Let go of the write end: the task reads what is in the pipe, and then its end."""
    if attempt.input is not None:
        os.close(attempt.input[0])
        attempt.input = None
