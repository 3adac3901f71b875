"""Functions, arguments and results as bytes. cloudpickle is imported when the first call is made.

What is defined in `__main__` or in a notebook travels by value, what is in a module by its name: workers must be able
to import that module.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Mapping
from concurrent.futures import BrokenExecutor
from typing import Any, NamedTuple

from phalanx.api.schema.calls import CALL_BYTES_MAX, CallResult
from phalanx.errors import CallFailed

PROTOCOL = pickle.HIGHEST_PROTOCOL
PLAIN = frozenset({int, float, str, bytes, bool, type(None)})  # pickled alike by every pickler, and fast


class PickledFunction(NamedTuple):
    digest: str
    pickled: bytes


class RemoteTraceback(Exception):
    """The traceback of a call, as its worker wrote it. It is the `__cause__` of what the call raised.

    `tries` is how often the call ran; the traceback is that of the last time.
    """

    def __init__(self, text: str, tries: int = 1) -> None:
        super().__init__(text)
        self.text = text
        self.tries = tries

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


class CallLost(CallFailed, BrokenExecutor):
    """The process of a call ended, or its worker was lost, more often than it may be retried."""


def pickle_function(function: Callable[..., Any]) -> PickledFunction:
    """The function; CallFailed if it cannot be pickled."""
    found = _pickled(function, f"the function {_name(function)}", "FunctionNotPicklable")
    return PickledFunction(hashlib.sha256(found).hexdigest()[:32], found)


def pickle_arguments(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bytes:
    """The arguments of one call; CallFailed if they cannot be pickled."""
    if not kwargs and PLAIN.issuperset(map(type, args)):
        return _checked(pickle.dumps((args, {}), PROTOCOL), f"the arguments of {_name(function)}")
    what = f"an argument of {_name(function)}"
    return _pickled((args, dict(kwargs)), what, "ArgumentsNotPicklable")


def error_of(result: CallResult, tries: int = 1) -> BaseException:
    """What a call raised, with its traceback as the cause; or why there is no result. `tries`: how often it ran."""
    if result.outcome == "raised":
        error = _raised(result)
        error.__cause__ = RemoteTraceback(result.text, tries)
        if tries > 1:
            error.add_note(f"The call was tried {tries} times; this is what it raised the last time.")
        return error
    if result.outcome == "died":
        log = (
            f"phalanx logs {result.worker} has the log of its worker, which"
            if result.worker
            else "its worker's log"
        )
        return CallLost(result.text, reason=result.code or "CallLost", hint=f"{log} may say why")
    hint = (
        "write it to a file that both sides reach, and return its name"
        if result.code == "ResultTooLarge"
        else ""
    )
    return CallFailed(result.text, reason=result.code, hint=hint)


def _raised(result: CallResult) -> BaseException:
    """The exception of the call itself, or one that has its text."""
    if not result.value:
        return CallFailed(
            f"the call raised what cannot be pickled:\n{result.text}", reason="ExceptionNotPicklable"
        )
    try:
        error = pickle.loads(result.value)  # noqa: S301 - from our own worker
    except Exception as why:  # an exception may fail to be made again in any way
        return CallFailed(
            f"the exception of the call cannot be unpickled here ({why!r}):\n{result.text}",
            reason="ExceptionNotPicklable",
        )
    if not isinstance(error, BaseException):
        return CallFailed(
            f"the call raised what is not an exception here:\n{result.text}", reason="ExceptionNotPicklable"
        )
    return error


def _pickled(value: object, what: str, code: str) -> bytes:
    import cloudpickle

    try:
        found: bytes = cloudpickle.dumps(value, PROTOCOL)
    except Exception as error:  # a pickler raises whatever the object does
        raise CallFailed(
            f"{what} cannot be pickled: {error}",
            reason=code,
            hint="open files, sockets and locks cannot travel",
        ) from error
    return _checked(found, what)


def _checked(found: bytes, what: str) -> bytes:
    if len(found) > CALL_BYTES_MAX:
        raise CallFailed(
            f"{len(found)} bytes are too many for {what} when pickled: at most {CALL_BYTES_MAX} are allowed",
            reason="CallTooLarge",
            hint="write it to a file that both sides reach, and pass its name",
        )
    return found


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", None) or repr(function))[:200]
