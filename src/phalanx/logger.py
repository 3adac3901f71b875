"""The log of a daemon: events with fields, readable by people or by programs.

Everything goes through the standard `logging` under the name `phalanx`, so a program that uses Phalanx as a library
gets only warnings unless it asks for more. Daemons call `open_log` once, at their start.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

_SHARED: list[Any] = [
    structlog.stdlib.filter_by_level,
    structlog.processors.add_log_level,
    structlog.processors.StackInfoRenderer(),
    structlog.processors.format_exc_info,
]


def logger(name: str) -> Any:
    """A logger for one package, such as `logger("coordinator")`."""
    return structlog.wrap_logger(
        logging.getLogger(f"phalanx.{name}"),
        processors=[*_SHARED, _as_line],
        wrapper_class=structlog.stdlib.BoundLogger,
    )


def open_log(level: str = "INFO") -> None:
    """Write to stderr from now on, with the time before each line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s %(message)s"))
    root = logging.getLogger("phalanx")
    root.handlers[:] = [handler]
    root.setLevel(level)
    root.propagate = False


def told(error: BaseException) -> dict[str, str]:
    """An error as fields of a log line: what is wrong and, if the error has a hint, what to do next."""
    hint = getattr(error, "hint", "")
    return {"error": str(error), "hint": hint} if hint else {"error": str(error)}


def _as_line(_logger: Any, _method: str, fields: Any) -> str:
    """The event in plain words, then its fields. What users and nodes wrote cannot begin a line of its own."""
    event, error = fields.pop("event"), fields.pop("exception", None)
    fields.pop("level", None)
    told = " ".join(f"{name}={value!r}" for name, value in fields.items())
    return "\n".join(part for part in (_plain(f"{event} {told}".rstrip()), error) if part)


def _plain(text: str) -> str:
    """Without line ends, escapes and other characters that a terminal obeys: they are written as `\\n`, `\\x1b`."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
