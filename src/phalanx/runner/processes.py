"""The runner's connection to the keeper, which is the parent of its processes.

Requests are plain calls; all that are made in one turn of the event loop travel as one frame. A `forget` waits a
moment for such a frame, because waking the keeper costs more than anything sent to it. Answers and events come back as
values through one callback. The keeper (`runner/keeper/`) outlives the runner: `open` connects to the one that is
alive or starts one, and `listing` then has what ran meanwhile. `core/runner/state.py` decides which attempts to run,
and what to do about their ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import msgspec

from phalanx.runner.keeper_messages import (
    Answer,
    BriefAccount,
    Event,
    Facts,
    KeeperLost,
    Launch,
    Listing,
    Misunderstood,
    Pong,
    Ticks,
)
from phalanx.runner.keeper_versions import (
    HOLDS_SINCE,
    JOINS_STREAMS_SINCE,
    LEASE_ENDS_SINCE,
    MAKES_FOLDERS_SINCE,
    STARTS_EXPIRE_SINCE,
    STOPS_SAY_WHY_SINCE,
)
from phalanx.runner.log_files import LogPath
from phalanx.runner.results import TaskResult

REQUESTS_PER_FRAME = 256
FORGOTTEN_PER_REQUEST = 1000
FORGET_WITHIN_S = 0.05  # a `forget` is sent with the next request, or alone after this
CLOSE_WITHIN_S = 2.0  # how long a keeper may take to read our last requests

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Answer]).decode
PAUSE_FIRST_S, PAUSE_S_MAX = 0.01, 0.2  # before a keeper that hung up is asked again


class KeeperFailed(RuntimeError):
    """No keeper could be reached or started for this state folder."""


class KeeperSilent(KeeperFailed):
    """No keeper answered in time: an existing one may be stopped, or a new one takes long to start."""

    def __init__(self, text: str, is_there: bool) -> None:
        super().__init__(text)
        self.is_there = is_there


class Machine(Protocol):
    """What the runner needs of its machine; `machine.py` has the real one."""

    async def connect(self, make: Callable[[], Processes]) -> Processes:
        """Connect to the keeper; raises OSError where none listens."""
        ...

    async def start_keeper(self, within_s: float) -> None:
        """Start one, unless there is one; raises KeeperFailed or TimeoutError."""
        ...

    def end_keeper(self) -> bool:
        """Kill the keeper, if there is one; False if none was found."""
        ...

    def make_folder(self, path: str) -> None:
        """Make a folder and those above it, unless it is there; raises OSError."""

    def remove_empty(self, path: str) -> None:
        """Remove a folder with nothing in it; another stays."""

    def read_result(self, path: LogPath, tasks: int, bytes_max: int | None) -> TaskResult | None:
        """What a task that has ended gave as its result; None if its file is longer than that."""
        ...

    def make_artifacts(self, path: LogPath) -> None:
        """Make the folder of an attempt's artifacts; raises OSError."""

    def write_hosts(self, path: LogPath, text: str) -> None:
        """Write the hosts file of an attempt, in place: its task may see it already. Raises OSError."""

    def remove_hosts(self, path: LogPath) -> None:
        """Remove it, if it is there."""

    def has_artifacts(self, path: LogPath) -> bool:
        """Whether there is such a folder."""
        ...

    def close_artifacts(self, path: LogPath) -> bool:
        """Whether a task that has ended left artifacts in its folder; if not, the folder is removed."""
        ...

    def begun(self) -> dict[str, tuple[float, Ticks]]:
        """What the keeper recorded as started: when, by key. It may not have been able to send it."""
        ...


class Processes(asyncio.Protocol):
    """One connection to the keeper of a state folder. Calls after it was lost have no effect."""

    def __init__(
        self, on_event: Callable[[Event], None], on_settled: Callable[[], None] = lambda: None
    ) -> None:
        """`on_settled` is called when all events that have arrived together were given to `on_event`."""
        self._on_event = on_event
        self._on_settled = on_settled
        self._loop = asyncio.get_running_loop()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._listings: deque[asyncio.Future[Listing]] = deque()
        self._pings: deque[asyncio.Future[None]] = deque()
        self._requests: list[Sequence[Any]] = []
        self._forgotten: list[str] = []  # what the keeper may forget, and has not been told yet
        self._flushes_soon = False  # at the end of this turn
        self._flushes_later = False
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None
        self._leaving = False
        self._hearing = False  # whether a flush will follow what is being received
        self._version = 0
        self.found = Listing((), Facts(0))  # what it had when we connected

    @classmethod
    async def open(
        cls,
        machine: Machine,
        on_event: Callable[[Event], None],
        on_settled: Callable[[], None] = lambda: None,
        *,
        deadline_s: float = 10.0,
    ) -> Processes:
        """Connect to the living keeper of this machine, or start one; raises KeeperFailed."""
        is_there = hung_up = False
        pause_s = PAUSE_FIRST_S
        try:
            async with asyncio.timeout(deadline_s):
                while True:
                    try:
                        processes = await machine.connect(lambda: cls(on_event, on_settled))
                        is_there = True
                        await processes.check_alive()
                        return processes
                    except OSError:  # nothing listens, or the name of its socket is taken by something else
                        await machine.start_keeper(deadline_s)
                        is_there = True
                    except KeeperFailed:  # it died, or serves another: two must not take turns for ever
                        hung_up = True
                        await asyncio.sleep(pause_s)
                        pause_s = min(2 * pause_s, PAUSE_S_MAX)
        except TimeoutError:
            text = f"no keeper answered in {machine} within {deadline_s:g} s"
            if hung_up:
                raise KeeperFailed(text) from None
            raise KeeperSilent(text, is_there) from None

    async def check_alive(self) -> None:
        """Raise KeeperFailed unless the keeper answers: one that was just killed may still accept."""
        self._leaving = True  # until then this call reports its loss, and not an event
        try:
            self.found = await self.listing()
        except asyncio.CancelledError:
            self.abort()  # it will not be used any more
            raise
        if self._gone.done():
            raise KeeperFailed("the keeper was lost when it had answered")
        self._version = self.found.facts.version
        self._leaving = False

    @property
    def version(self) -> int:
        """The version of the keeper."""
        return self._version

    @property
    def can_hold(self) -> bool:
        """False for a keeper of an older version, which would start a held attempt at once."""
        return self._version >= HOLDS_SINCE

    @property
    def starts_expire(self) -> bool:
        """False for a keeper of an older version, which may start an attempt after its instant."""
        return self._version >= STARTS_EXPIRE_SINCE

    @property
    def makes_folders(self) -> bool:
        """False for an older keeper: the runner makes folders for artifacts, and tasks have no accounts."""
        return self._version >= MAKES_FOLDERS_SINCE

    @property
    def joins_streams(self) -> bool:
        """False for an older keeper, which writes two logs for each attempt."""
        return self._version >= JOINS_STREAMS_SINCE

    def ping(self) -> asyncio.Future[Any]:
        """Done when the keeper has answered; also when it is lost, which is an event."""
        if not self.starts_expire:
            return asyncio.ensure_future(self.listing())
        answer: asyncio.Future[None] = self._loop.create_future()
        self._pings.append(answer)
        self._ask("ping")
        return answer

    def brief(
        self,
        brief_id: str,
        argv: Sequence[str],
        env: dict[str, str],
        cwd: str | None = None,
        cgroups: str | None = None,
        account: BriefAccount | None = None,
    ) -> None:
        """Send what many attempts of one job share. The keeper keeps it until forget_brief, or its death.

        `cgroups` is the folder in which each attempt gets its own cgroup; without an account they get the keeper's.
        """
        content = {"argv": argv, "env": env, "cwd": cwd, "cgroups": cgroups, "account": account}
        self._ask("brief", brief_id, content)

    def forget_brief(self, brief_id: str) -> None:
        self._mention("forget_brief", brief_id)

    def start(self, key: str, brief_id: str, launch: Launch) -> None:
        """Answered by Started, Refused or Ready. A key that runs or has ended is not started again, only reported."""
        self._ask("start", key, brief_id, launch)

    def go(self, key: str, not_after: float | None = None) -> None:
        """Start an attempt that is ready, unless it is too late. No effect on any other."""
        if not_after is None or not self.starts_expire:
            self._ask("go", key)
        else:
            self._ask("go", key, not_after)

    def stop(self, key: str, grace_s: float, why: str | None = None) -> None:
        """SIGTERM, after the grace SIGKILL. An attempt not yet started will be refused with `stopped`.

        The reason comes back with its end, to the runner of that time.
        """
        if why is None or self._version < STOPS_SAY_WHY_SINCE:
            self._ask("stop", key, grace_s)
        else:
            self._ask("stop", key, grace_s, why)

    def retract(self, key: str) -> None:
        """Withdraw an attempt that still waits for its lane: Refused with `retracted`. Else no effect."""
        self._ask("retract", key)

    def pause(self, key: str) -> None:
        self._ask("pause", key)

    def resume(self, key: str) -> None:
        self._ask("resume", key)

    def reader(self, key: str, log: int, at: int | None, for_s: float) -> None:
        self._ask("reader", key, log, at, for_s)

    def end_input(self, key: str) -> None:
        """Close the standard input of an attempt: it reads the end of it."""
        self._ask("end_input", key)

    def lease(self, seconds_left: float, until: float | None = None) -> None:
        """Without another call in that time, and before that instant since boot, the keeper stops everything."""
        if until is None or self._version < LEASE_ENDS_SINCE:
            self._ask("lease", seconds_left)
        else:
            self._ask("lease", seconds_left, until)
        self._flush()  # at once: what else has to be done in this turn may take long

    def forget(self, keys: Sequence[str]) -> None:
        """The exits of these attempts are safe elsewhere; the keeper need not remember them."""
        self._forgotten += keys
        self._flush_within(FORGET_WITHIN_S)

    async def listing(self) -> Listing:
        """All attempts that run, or have ended and were not forgotten; raises KeeperFailed if it is lost."""
        if self._gone.done():
            raise KeeperFailed("the connection to the keeper is lost")
        answer: asyncio.Future[Listing] = self._loop.create_future()
        self._listings.append(answer)
        self._add_forgotten()
        self._ask("list")
        return await answer

    async def shutdown(self, grace_s: float) -> None:
        """Stop every attempt, then the keeper; returns when it is gone."""
        self._leaving = True
        self._ask("shutdown", grace_s)
        await asyncio.shield(self._gone)

    async def close(self) -> None:
        """Disconnect. The keeper and the attempts go on."""
        self._leaving = True
        self._flush()
        if self._transport is not None:
            self._transport.close()
            await asyncio.wait({self._gone}, timeout=CLOSE_WITHIN_S)
            self.abort()  # drops what a frozen keeper does not read

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def _ask(self, *request: Any) -> None:
        self._requests.append(request)
        if not self._flushes_soon:
            self._flushes_soon = True
            if not self._hearing:
                self._loop.call_soon(self._flush)

    def _mention(self, *request: Any) -> None:
        """Send a request that is not urgent."""
        self._requests.append(request)
        self._flush_within(FORGET_WITHIN_S)

    def _flush_within(self, within_s: float) -> None:
        if not self._flushes_later:
            self._flushes_later = True
            self._loop.call_later(within_s, self._flush_later)

    def _flush_later(self) -> None:
        self._flushes_later = False
        self._flush()

    def _flush(self) -> None:
        self._add_forgotten()  # after all others: a key that is asked for again has ended, and is not started again
        requests, self._requests = self._requests, []
        self._flushes_soon = False
        if self._transport is None or self._transport.is_closing():
            return
        for at in range(0, len(requests), REQUESTS_PER_FRAME):
            body = _encode(requests[at : at + REQUESTS_PER_FRAME])
            self._transport.write(len(body).to_bytes(4, "big") + body)

    def _add_forgotten(self) -> None:
        for at in range(0, len(self._forgotten), FORGOTTEN_PER_REQUEST):
            self._requests.append(("forget", self._forgotten[at : at + FORGOTTEN_PER_REQUEST]))
        self._forgotten = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one without inheriting from it

    def data_received(self, data: bytes) -> None:
        """Receive all that arrived. Requests made in response leave at the end, without another turn."""
        self._received += data
        self._hearing = not self._flushes_soon
        try:
            while (frame := self._next_frame()) is not None:
                self._hear(frame)
        finally:
            self._on_settled()
            if self._hearing:
                self._hearing = False
                if self._flushes_soon:
                    self._flush()

    def _next_frame(self) -> bytes | None:
        end = 4 + int.from_bytes(self._received[:4], "big")
        if len(self._received) < max(end, 4):
            return None
        frame = bytes(self._received[4:end])
        del self._received[:end]
        return frame

    def _hear(self, frame: bytes) -> None:
        try:
            answers = _decode(frame)
        except msgspec.MsgspecError as error:
            self._on_event(Misunderstood(f"the keeper's answer cannot be read: {error}"))
            return
        for answer in answers:
            if not isinstance(answer, Listing | Pong):
                self._on_event(answer)
            elif isinstance(answer, Pong):
                if self._pings and not (ping := self._pings.popleft()).done():
                    ping.set_result(None)
            elif not (asked := self._listings.popleft()).done():
                asked.set_result(answer)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._gone.done():
            self._gone.set_result(None)
        for asked in self._listings:
            if not asked.done():
                asked.set_exception(KeeperFailed("the keeper was lost before it answered"))
        for ping in self._pings:
            ping.cancel()
        if not self._leaving:
            self._on_event(KeeperLost(str(error or "the keeper closed the connection")))
