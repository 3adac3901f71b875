"""The readers of attached attempts: keepers learn how far each is, and say whose attempt is stopped for it.

A reader is a client somewhere behind a coordinator. It is there while it asks, or while its coordinator says so
(`wire.HoldLog`); when neither comes any more, because one of them is gone, the attempt goes on without it.
"""

from __future__ import annotations

from phalanx.core.model.orders import AttemptKey
from phalanx.runner.keeper_keys import read_key
from phalanx.runner.keeper_versions import ATTACHES_SINCE
from phalanx.runner.keepers import NodeKeepers
from phalanx.runner.log_files import STREAMS
from phalanx.runner.turn import RunnerEngine

HOLD_S = 90.0  # after the last sign of a reader: longer than a client tries to reach its cluster
TOLD_BYTES = 1 << 20  # of progress that the keeper need not know of


class OutputReaders:
    """Those of one runner."""

    def __init__(self, engine: RunnerEngine, keepers: NodeKeepers, names: dict[AttemptKey, str]) -> None:
        """`names` are the keepers' keys of attempts."""
        engine.unread = self.unread
        self._engine = engine
        self._keepers = keepers
        self._names = names
        self._told: dict[tuple[AttemptKey, str], int] = {}

    def asked(self, key: AttemptKey, stream: str, at: int) -> None:
        """It asks for what is behind `at`, so it has what is before."""
        told = self._told.get((key, stream))
        if told is None or not told <= at < told + TOLD_BYTES:
            self._tell(key, stream, at, HOLD_S)

    def held(self, key: AttemptKey, stream: str, for_s: float) -> None:
        """Its coordinator says that it is there for so long."""
        self._tell(key, stream, None, min(max(0.0, for_s), HOLD_S))

    def unread(self) -> list[AttemptKey]:
        """The attempts that are stopped until their output is read."""
        return [named[0] for keeper in self._keepers for name in keeper.unread if (named := read_key(name))]

    def _tell(self, key: AttemptKey, stream: str, at: int | None, for_s: float) -> None:
        connection = self._keepers.connection_of(key)
        if connection is None or key not in self._names or connection.version < ATTACHES_SINCE:
            return
        if at is not None:
            self._told = {each: far for each, far in self._told.items() if self._engine.is_live(each[0])}
            self._told[key, stream] = at
        connection.reader(self._names[key], STREAMS.index(stream), at, for_s)
