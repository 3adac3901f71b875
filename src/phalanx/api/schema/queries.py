"""Query strings, each into a struct. What is unknown, given twice or of another type is refused by its name."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar
from urllib.parse import parse_qsl

import msgspec
from msgspec import Meta, Struct

from phalanx.api.schema.documents import explained
from phalanx.api.schema.fields import SELECTOR_MAX, shown
from phalanx.api.schema.jobs import StatusWord
from phalanx.core.model.job import OBJECT_MAX
from phalanx.errors import BadRequest

Q = TypeVar("Q", bound=Struct)

WAIT_S_MAX = 60
REVISION_MAX = 2**63 - 1
NEWEST = "newest"  # instead of the cursor of a story

Stream = Literal["stdout", "stderr"]
Follow = bool | Literal["hold"]  # hold: an attached task waits for its reader
Limit = Annotated[int, Meta(ge=1, le=1000)]
Word = Annotated[str, Meta(min_length=1, max_length=128)]
Select = Annotated[str, Meta(max_length=SELECTOR_MAX)]
Position = Annotated[int, Meta(ge=0, le=REVISION_MAX)]


class NoQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """For routes that take no parameter."""


class JobsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    status: StatusWord | None = None
    queue: Word | None = None
    name: Word | None = None  # `*` in it stands for any text
    selector: Select | None = None
    user: Word | None = None
    mine: bool = False  # only those of whoever asks
    since: Annotated[float, Meta(ge=0, le=1e11)] | None = None  # submitted then or later, since 1970
    until: Annotated[float, Meta(ge=0, le=1e11)] | None = None  # submitted before that
    node: Word | None = None  # that have a task on this node; of ended ones, that had one there
    cursor: Word | None = None
    limit: Limit = 100


class ReasonsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    jobs: Annotated[str, Meta(max_length=4096)] = ""  # ids or numbers with commas between them, 100 at most


class WorkflowsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    cursor: Word | None = None
    limit: Limit = 100


class NamesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    own: bool = False  # never another user's


class TasksQuery(Struct, frozen=True, forbid_unknown_fields=True):
    status: StatusWord | None = None
    selector: Select | None = None
    cursor: Word | None = None
    limit: Limit = 100


class StoryQuery(Struct, frozen=True, forbid_unknown_fields=True):
    cursor: Word | None = (
        None  # of the page before; `newest`: the last lines, in their order, and then older ones
    )
    limit: Limit = 100


class WhyQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """With `waiting` a job that runs in part is asked about what of it waits, its first such task."""

    waiting: bool = False


class WaitQuery(Struct, frozen=True, forbid_unknown_fields=True):
    timeout_s: Annotated[float, Meta(ge=0, le=WAIT_S_MAX)] = 30.0


class LogsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """`offset` counts bytes from the beginning, `lines` lines from the end: one of them. `hold`: an attached one waits.

    Bytes not kept are told in a line of their own; with `split` the answer ends there and the next has their number.
    """

    stream: Stream = "stdout"
    attempt: Annotated[int, Meta(ge=1, le=REVISION_MAX)] | None = None
    offset: Position | None = None
    lines: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    follow: bool = False
    split: bool = False
    hold: bool = False


class EventsQuery(Struct, frozen=True, forbid_unknown_fields=True):
    after: Position | None = None
    job: Annotated[str, Meta(min_length=1, max_length=OBJECT_MAX)] | None = None


class AuditQuery(Struct, frozen=True, forbid_unknown_fields=True):
    tail: Annotated[int, Meta(ge=1, le=10_000)] = 100


def read_query(query_string: bytes, form: type[Q]) -> Q:
    """Decode a query string, or raise BadRequest naming the parameter."""
    if not query_string:
        return form()
    words = _words(query_string)
    try:
        return msgspec.convert(words, form, strict=False)
    except msgspec.ValidationError as error:
        raise explained(error, form, "query parameter", words) from None


def _words(query_string: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(query_string.decode("latin-1"), keep_blank_values=True, max_num_fields=32)
    except ValueError as error:
        raise BadRequest(f"the query cannot be read: {error}") from None
    words = dict(pairs)
    if len(words) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BadRequest(f"query parameter {shown(twice)} is given twice")
    return words
