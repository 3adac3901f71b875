"""The error tree. Each error has a status code for HTTP, an exit code for a shell, and a hint.

    PhalanxError                        status  exit
    ├── BadRequest                        400     2   the words are wrong: a field, a value, a target
    ├── Unauthorized                      401    77   no token, or not one of ours
    ├── Forbidden                         403    77   known, but not allowed
    ├── NotFound                          404     5   no such job, task, node
    ├── WrongMethod                       405     2   the path exists, but not with this HTTP method
    ├── Conflict                          409     6   not in this state: already ended, replaced
    ├── Busy                              409     3   would fit, but not now (asked with no_queue)
    ├── Gone                              410     6   a watch asked for what is no longer kept: list again
    ├── TooLarge                          413     2   a body over its limit
    ├── WrongType                         415     2   a body that does not say it is JSON
    ├── Unprocessable                     422     2   a number out of its range
    ├── NeverFits                         422     4   no node of this cluster could ever hold it
    ├── TooMany                           429    75   a queue is full: try again after `retry_after_s`
    ├── NoRoom                            503     3   no node can take it now (asked with no_queue)
    ├── Unavailable                       503    69   the coordinator cannot be reached, or cannot write
    │   ├── NotActive                     503    69   a standby was asked for a change: its `leader` may do it
    │   └── Unconfirmed                   503    69   a change was sent and not answered: it may have been accepted
    ├── JobFailed                         500     1   a job did not complete, and `wait(check=True)` or `result()` asked
    ├── CallFailed                        500     1   a call of an Executor: lost too often, too large, not picklable
    └── ConfigError                       500     2   a setting that cannot be used
        └── TokenError                    500    77   a token file that must not be used

What other libraries raise is translated into one of these at the door.
"""

from __future__ import annotations

from typing import Any, ClassVar

LOG_AWAY = (
    "LogAway"  # of Unavailable: the log of an attempt is on a node that is away, and the task runs again
)


class PhalanxError(Exception):
    """The root. `reason` is a code for programs, `detail` a sentence for people, `hint` what to do next."""

    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1
    title: ClassVar[str] = "Internal error"

    def __init__(
        self,
        detail: str,
        *,
        reason: str = "",
        hint: str = "",
        retry_after_s: float | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.reason = reason or type(self).__name__
        self.hint = hint
        self.retry_after_s = retry_after_s
        self.extra = extra or {}

    @property
    def hint(self) -> str:
        return self._hint

    @hint.setter
    def hint(self, text: str) -> None:
        """It is a note of the exception as well, so that the traceback of a program shows it."""
        self._hint = text
        self.__notes__ = [f"hint: {text}"] if text else []


class BadRequest(PhalanxError):
    """The request is wrong: a field, a value, a target."""

    status, exit_code, title = 400, 2, "Bad request"


class Unauthorized(PhalanxError):
    """No token was sent, or it is not valid."""

    status, exit_code, title = 401, 77, "Not authenticated"


class Forbidden(PhalanxError):
    """The token is valid and its role does not allow this."""

    status, exit_code, title = 403, 77, "Not permitted"


class NotFound(PhalanxError):
    """There is no such job, task, node, queue or token."""

    status, exit_code, title = 404, 5, "Not found"


class WrongMethod(PhalanxError):
    """The path exists, but not with this HTTP method."""

    status, exit_code, title = 405, 2, "Method not allowed"


class Conflict(PhalanxError):
    """It cannot be done in this state: the job has ended, or the request id was used for something else."""

    status, exit_code, title = 409, 6, "Conflict"


class Busy(PhalanxError):
    """It would fit, but not now (asked with `no_queue`)."""

    status, exit_code, title = 409, 3, "Not available now"


class Gone(PhalanxError):
    """A watch asked for events that are no longer kept: list again."""

    status, exit_code, title = 410, 6, "No longer kept"


class TooLarge(PhalanxError):
    """The body is larger than its limit."""

    status, exit_code, title = 413, 2, "Too large"


class WrongType(PhalanxError):
    """The body does not say that it is JSON."""

    status, exit_code, title = 415, 2, "Not JSON"


class Unprocessable(PhalanxError):
    """A number is out of its range."""

    status, exit_code, title = 422, 2, "Out of range"


class NeverFits(PhalanxError):
    """No node of this cluster could ever hold it."""

    status, exit_code, title = 422, 4, "Can never fit this cluster"


class TooMany(PhalanxError):
    """A limit was reached: try again after `retry_after_s`."""

    status, exit_code, title = 429, 75, "Too many requests"


class NoRoom(PhalanxError):
    """No node can take it now (asked with `no_queue`)."""

    status, exit_code, title = 503, 3, "No capacity now"


class Unavailable(PhalanxError):
    """The coordinator cannot be reached, or cannot write."""

    status, exit_code, title = 503, 69, "Unavailable"


class NotActive(Unavailable):
    """A standby was asked to change something. `extra["leader"]` names the leader, if one is known."""

    title = "Not the active coordinator"


class Unconfirmed(Unavailable):
    """A change was sent and no answer came, so it is unknown whether it was accepted.

    `extra["request_id"]` is what it was sent with, if it can be repeated with that.
    """

    title = "Outcome unknown"


class CallFailed(PhalanxError):
    """A call of an `Executor` has no result, for a reason that is not an exception of its function."""

    status, exit_code, title = 500, 1, "Call failed"


class JobFailed(PhalanxError):
    """A job did not complete. `job` and `task` are their views, `code` the exit code, `log_tail` the end of its log."""

    status, exit_code, title = 500, 1, "Job failed"

    def __init__(
        self,
        detail: str,
        *,
        job: Any = None,
        task: Any = None,
        code: int | None = None,
        log_tail: str = "",
        **more: Any,
    ) -> None:
        super().__init__(detail, **more)
        self.job = job
        self.task = task
        self.code = code
        self.log_tail = log_tail


class ConfigError(PhalanxError):
    """An invalid setting: the key, the value, where it is set and what would be right."""

    status, exit_code, title = 500, 2, "Invalid setting"


class TokenError(ConfigError):
    """A token file that must not be used; no other one is tried instead."""

    exit_code = 77
