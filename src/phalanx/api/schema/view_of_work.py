"""What views of jobs and of tasks have in common: they are values, and say where methods are that they do not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import asdict

_METHODS = ("wait", "logs", "follow", "result", "results", "cancel", "why", "retry")


class ViewOfWork(Struct):
    """What a job or a task was when it was asked about. Handles and clients have the methods that ask the cluster."""

    if not TYPE_CHECKING:  # a type checker reports what is not there

        def __getattr__(self, name: str) -> object:
            raise AttributeError(_missing(self, name), name=name, obj=self)


def _missing(view: ViewOfWork, name: str) -> str:
    kind = type(view).__name__
    if name not in _METHODS:
        return f"{kind!r} object has no attribute {name!r}"
    fields = asdict(view)
    called = fields["number"] or fields["id"]
    where = f"client.{name}({called!r})" if "job_id" in fields else f"client.handle({called}).{name}()"
    return (
        f"a {kind} has no {name!r}, it is how {called} was when it was asked about: {where} asks the cluster"
    )
