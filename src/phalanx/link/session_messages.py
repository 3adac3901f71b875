"""The messages that begin a session between coordinator and runner. What follows are frames of `session_frames.py`.

`OpenSession` goes over the node's connection for logs. The runner then dials a connection for this session alone, and
says hello there; when that is taken, the connection carries frames of the session and nothing else.
"""

from __future__ import annotations

from msgspec import Struct

from phalanx.core.model.orders import AttemptKey


class SessionSpec(Struct, frozen=True):
    """What is asked for: a command beside an attempt, a connection to a port of it, or its standard input."""

    command: tuple[str, ...] = ()  # none: the task's shell
    tty: bool = False
    stdin: bool = False
    rows: int = 0
    columns: int = 0
    term: str = ""
    port: int = 0  # another than 0: a connection to this port, and no command
    is_input: bool = False  # the standard input of the attempt itself, and no command


class OpenSession(Struct, frozen=True, tag="open_session"):
    """`secret` shows that the connection of this session comes from the runner that was asked."""

    id: str
    secret: str
    key: AttemptKey
    spec: SessionSpec


class SessionHello(Struct, frozen=True, tag="session_hello"):
    """The first message of a session's connection."""

    version: int
    token: str
    node: str
    id: str
    secret: str


class SessionTaken(Struct, frozen=True, tag="session_taken"):
    """Frames follow, in both directions."""


SessionMessage = OpenSession | SessionHello | SessionTaken
