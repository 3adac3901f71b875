"""What travels over REST to begin a session: a command beside a task, a connection to a port of it, or its input."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from phalanx.errors import BadRequest

WORDS_MAX = 1000
WORD_BYTES_MAX = 128 * 1024 - 1  # the kernel takes no longer one
COMMAND_BYTES_MAX = 512 * 1024
SIZE_MAX = 65_535
UPGRADE = "phalanx-session"  # the protocol that a session's connection changes to

Cells = Annotated[int, Meta(ge=0, le=SIZE_MAX)]
Rank = Annotated[int, Meta(ge=0, le=10_000_000)]


class ExecRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A command to run beside a running task."""

    command: Annotated[list[str], Meta(max_length=WORDS_MAX)] = []  # none: the task's shell
    tty: bool = False
    stdin: bool = False  # whether input will come; without, it reads /dev/null
    rows: Cells = 0  # of the terminal; 0: unknown
    columns: Cells = 0
    term: Annotated[str, Meta(max_length=64, pattern=r"^[A-Za-z0-9._+-]*$")] = ""  # TERM of the terminal
    rank: Rank | None = None  # of a member, if the id is a gang's

    def check(self) -> None:
        """Raise BadRequest for words that no process can be given."""
        total = 0
        for at, word in enumerate(self.command):
            size = len(word.encode("utf-8", "surrogatepass"))
            total += size + 1
            if "\0" in word:
                raise BadRequest(f"command[{at}] has a zero byte, which no argument can have")
            if size > WORD_BYTES_MAX:
                raise BadRequest(f"command[{at}] has {size} bytes, expected at most {WORD_BYTES_MAX}")
        if total > COMMAND_BYTES_MAX:
            raise BadRequest(f"command has {total} bytes, expected at most {COMMAND_BYTES_MAX}")
        if self.command and not self.command[0]:
            raise BadRequest("command[0] = '': expected the name of a program")


class ForwardRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A TCP port of a running task to connect to; once for each connection."""

    port: Annotated[int, Meta(ge=1, le=65_535)]
    rank: Rank | None = None  # of a member, if the id is a gang's


class InputRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The standard input of a running task that was submitted with `stdin`."""

    attempt: Annotated[
        int, Meta(ge=1, le=10_000_000)
    ]  # whose it is: another attempt gets it from its beginning


class SessionTicket(Struct, frozen=True, kw_only=True):
    """The right to open one session, once, within `expires_in_s` seconds, for the user who asked for it."""

    session: str
    ticket: str
    expires_in_s: float
    task: str
    attempt: int
    node: str
