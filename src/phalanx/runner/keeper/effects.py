"""What the keeper's table asks its driver for, as plain values. Small classes, since dataclasses cost memory here."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .attempt import KeptAttempt, Options


class KeptBrief:
    """What many attempts of one job share."""

    __slots__ = ("argv", "cgroups", "cwd", "env")

    def __init__(self, content: dict[str, Any]) -> None:
        self.argv: list[str] = [*content["argv"]]
        self.env: dict[str, str] = {**content["env"]}
        self.cwd: str | None = content.get("cwd")
        self.cgroups: str = (
            content.get("cgroups") or ""
        )  # the folder in which each attempt gets a cgroup of its own


class SpawnProcess:
    """Start a process; answered with `started` or `refused`. If it is held, only look whether it could start.

    That is answered with `prepared` or `refused`.
    """

    __slots__ = ("brief", "held", "key", "options")

    def __init__(self, key: str, brief: KeptBrief, options: Options, held: bool) -> None:
        self.key = key
        self.brief = brief
        self.options = options
        self.held = held


class Signal:
    """Send these signals, in this order, to everything that belongs to a running attempt."""

    __slots__ = ("attempt", "numbers")

    def __init__(self, attempt: KeptAttempt, *numbers: int) -> None:
        self.attempt = attempt
        self.numbers = numbers


class SendLine:
    """Say this to the runner, if there is one."""

    __slots__ = ("line",)

    def __init__(self, line: str) -> None:
        self.line = line


class RecordLine:
    """Write this in the journal."""

    __slots__ = ("line",)

    def __init__(self, line: str) -> None:
        self.line = line


class RecordAndSend:
    """Write it in the journal, then say it; what is not urgent may wait a moment for company."""

    __slots__ = ("line", "urgent")

    def __init__(self, line: str, urgent: bool) -> None:
        self.line = line
        self.urgent = urgent


KeeperEffect = SpawnProcess | Signal | SendLine | RecordLine | RecordAndSend
