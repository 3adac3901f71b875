"""The keepers of a runner: which of them has which lane, and the connection to each, opened again when it is lost.

One keeper starts as many processes a second as one core can. A node with many cores has several, each with a folder,
journal, lease and watchdog of its own, so that what is proved of one keeper holds for each of them, and the end of one
ends only its own tasks. A lane stays with one keeper for as long as it lasts. The first keeper has the runner's own
folder, where a runner of an earlier version has its only one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from phalanx.core.model.orders import AttemptKey
from phalanx.logger import logger
from phalanx.runner.accounts import Account
from phalanx.runner.cgroups import Cgroups
from phalanx.runner.claim import keeper_folder, keeper_folders
from phalanx.runner.keeper import VERSION
from phalanx.runner.keeper_messages import Event, KeeperLost, ProcessEnded, ProcessUnread
from phalanx.runner.machine import Connecting, KeeperHealth, LocalMachine
from phalanx.runner.processes import Machine, Processes
from phalanx.runner.turn import RunnerEngine

log = logger("runner")
CORES_EACH = 2
USUAL_MAX = 8  # more are of no use: by then the runner itself is busy
BRIEFS_MAX = 1000  # from then on only one for each group
REOPEN_PAUSE_FIRST_S, REOPEN_PAUSE_MAX_S = 0.2, 10.0
REPLACE_WITHIN_S = 5.0
Place = tuple[Machine, Cgroups]  # where one keeper works


def usual_count(cores: int) -> int:
    """How many keepers a machine has if nothing else is said."""
    return max(1, min(USUAL_MAX, cores // CORES_EACH))


def places(state_dir: Path, count: int, cgroups: Callable[[str], Cgroups]) -> list[Place]:
    """The places of the keepers of this folder, also of those that an earlier runner had more of, if they are in use.

    `cgroups` finds the control groups of a keeper by what is added to the node's name.
    """
    found: list[Place] = []
    for number in range(max(count, 1 + max(keeper_folders(state_dir), default=0))):
        folder = keeper_folder(state_dir, number)
        if number < count:
            folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.mkdir(exist_ok=True, mode=0o700)
        elif not folder.is_dir():
            continue
        own = cgroups(f".{number}" if number else "")
        machine = LocalMachine(folder, own.bases)
        if number < count or machine.is_in_use():
            found.append((machine, own))
    return found


class NodeKeeper:
    """One keeper as its runner sees it."""

    def __init__(
        self,
        place: Place,
        engine: RunnerEngine,
        on_event: Callable[[NodeKeeper, Event], None],
        on_settled: Callable[[], None],
        on_found: Callable[[NodeKeeper, Processes], None],
    ) -> None:
        self.machine, self.cgroups = place
        self.connection: Processes | None = None
        self.health = KeeperHealth()
        self.briefed: dict[str, Account | None] = {}  # its briefs, with the account of their tasks
        self._briefs: dict[str, list[str]] = {}  # those of each group, which has one for every kind of grant
        self.lanes = 0  # that it has
        self.unread: set[str] = set()  # the keys of attempts that are stopped until their output is read
        self._on_event = on_event
        self._on_found = on_found  # another connection, in place of one that was lost
        self._connecting = Connecting(self.machine, self.health, engine, self._hear, on_settled)
        self._reopening: asyncio.Task[None] | None = None
        self._early: list[Event] | None = None  # events that arrive while what it has is still being read
        self._is_closed = False

    async def open(self) -> Processes:
        """Connect to the keeper of this place, or start one; its events wait until they are wanted."""
        self._early = []
        self.connection = await self._connecting.first()
        return self.connection

    def can_be_briefed(self, id: str) -> bool:
        """Whether it has this brief, or so few that it may get another one beside that of a group."""
        return id in self.briefed or len(self.briefed) < BRIEFS_MAX

    def note_brief(self, group: str, id: str, account: Account | None) -> None:
        """It has this brief of a group."""
        self.briefed[id] = account
        self._briefs.setdefault(group, []).append(id)

    def forget_briefs(self, group: str) -> list[str]:
        """All briefs of a group that it has, and may forget."""
        found = self._briefs.pop(group, [])
        for id in found:
            del self.briefed[id]
        return found

    def deliver(self) -> None:
        """Let its events through, also those that have waited."""
        early, self._early = self._early, None
        for event in early or ():
            self._hear(event)

    def end(self) -> None:
        """Kill it: it has been silent for longer than a lease."""
        self._connecting.end_keeper()
        if self.connection is not None:
            self.connection.abort()  # it may be gone already, and its connection held by another

    @property
    def is_outdated(self) -> bool:
        """Whether it is of an older version than ours."""
        return self.connection is not None and self.connection.version < VERSION

    def replace(self) -> None:
        """It has nothing to do: end it, and start one of our version."""
        if (connection := self.connection) is not None and self._reopening is None and not self._is_closed:
            log.info("a keeper of an older version is replaced", version=connection.version, ours=VERSION)
            self.connection = None
            self._reopening = asyncio.get_running_loop().create_task(self._replaced(connection))

    async def _replaced(self, connection: Processes) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(connection.shutdown(0.0), REPLACE_WITHIN_S)
        connection.abort()
        await self._reopen()

    async def stop_reopening(self) -> None:
        self._is_closed = True
        if (reopening := self._reopening) is not None:
            reopening.cancel()
            await asyncio.wait({reopening})

    def _hear(self, event: Event) -> None:
        if self._early is not None:
            self._early.append(event)
            return
        if isinstance(event, ProcessUnread):
            (self.unread.add if event.unread else self.unread.discard)(event.key)
            return
        if isinstance(event, ProcessEnded):
            self.unread.discard(event.key)
        if isinstance(event, KeeperLost):
            self.unread.clear()
            log.error("the keeper was lost", keeper=str(self.machine), message=event.message)
            self.connection = None
            if self._reopening is None and not self._is_closed:
                self._reopening = asyncio.get_running_loop().create_task(self._reopen())
        self._on_event(self, event)

    async def _reopen(self) -> None:
        """Find or start another keeper, for as long as it takes. Without one nothing starts here, and we report it."""
        pause_s = REOPEN_PAUSE_FIRST_S
        try:
            while True:
                try:
                    found = await self._connecting.again()
                    self.briefed.clear()
                    self._briefs.clear()
                    self._on_found(self, found)
                    return
                except (RuntimeError, OSError) as error:  # KeeperFailed, or no thread, process or descriptor
                    self.connection = None
                    self.health.failed(error)
                    log.error("no keeper, trying again", error=str(error), pause_s=pause_s)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, REOPEN_PAUSE_MAX_S)
        finally:
            self._reopening = None


class NodeKeepers:
    """All keepers of a runner: a new lane goes to the one that has the fewest."""

    def __init__(self, keepers: Sequence[NodeKeeper]) -> None:
        self._all = keepers
        self._by_lane: dict[int, NodeKeeper] = {}
        self._by_key: dict[AttemptKey, tuple[NodeKeeper, int]] = {}  # with its lane

    def __iter__(self) -> Iterator[NodeKeeper]:
        return iter(self._all)

    @property
    def connections(self) -> list[Processes]:
        return [keeper.connection for keeper in self._all if keeper.connection is not None]

    @property
    def trouble(self) -> str:
        """What keeps one of them from starting tasks; empty if all work."""
        return next((keeper.health.trouble for keeper in self._all if keeper.health.trouble), "")

    @property
    def outdated(self) -> list[NodeKeeper]:
        """Those of an older version that have nothing to do."""
        found = [keeper for keeper in self._all if keeper.is_outdated]
        busy = {id(keeper) for keeper, _ in self._by_key.values()} if found else set()
        return [keeper for keeper in found if id(keeper) not in busy]

    def of(self, key: AttemptKey) -> NodeKeeper | None:
        return self._by_key[key][0] if key in self._by_key else None

    def connection_of(self, key: AttemptKey) -> Processes | None:
        return self._by_key[key][0].connection if key in self._by_key else None

    def assign(self, key: AttemptKey, lane: int) -> NodeKeeper:
        """The keeper for an attempt: that of its lane."""
        keeper = self._by_lane.get(lane)
        if keeper is None:
            keeper = min(self._all, key=lambda each: each.lanes)
        self.adopt(keeper, key, lane)
        return keeper

    def adopt(self, keeper: NodeKeeper, key: AttemptKey, lane: int) -> None:
        """A keeper has this attempt."""
        self._by_key[key] = keeper, lane
        if lane not in self._by_lane:
            self._by_lane[lane] = keeper
            keeper.lanes += 1

    def forget(self, key: AttemptKey, open_lanes: Container[int]) -> None:
        """Nothing of an attempt is left, and of its lane neither, unless it is one of those that are open."""
        _, lane = self._by_key.pop(key, (None, None))
        if (
            lane is not None
            and lane not in open_lanes
            and (keeper := self._by_lane.pop(lane, None)) is not None
        ):
            keeper.lanes -= 1
