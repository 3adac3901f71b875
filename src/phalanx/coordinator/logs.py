"""The connections for logs: one per node, asked for logs piece by piece. Runners send files over the same.

Nothing here touches the mailbox or the store, so a flood of output cannot hold up control. A reader asks for
the next piece only when it has taken the last one, which is all the flow control there is.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Protocol

from msgspec import Struct

from phalanx.api.schema.jobs import LogChunk
from phalanx.coordinator.link_auth import STRANGER, LinkAuthenticator
from phalanx.coordinator.uploads import Uploads
from phalanx.core.model.log_times import TIMES, LogRow, read_rows
from phalanx.core.model.orders import AttemptKey
from phalanx.duplex import Duplex
from phalanx.errors import BadRequest, NotFound, Unavailable
from phalanx.link import wire
from phalanx.link.session_messages import OpenSession, SessionHello
from phalanx.link.usage import ReadUsage, UsageData
from phalanx.link.vps import AskSnapshots, SnapshotAction, SnapshotsTold

PIECE_BYTES = 256 * 1024
ANSWER_WITHIN_S = 15.0
AWAY_WITHIN_S = 1.0  # of a node that is offline: its connection may be left over from before
CHECK_EVERY_S = 2.0  # whether the node of a follower is still there
LOG_LINK_WITHIN_S = 3.0
UNKNOWN_EVERY_S = 0.05  # a node that does not know an attempt yet is asked again
HOLD_S, HOLD_EVERY_S = (
    90.0,
    15.0,
)  # for how long an attached attempt waits for its reader, unless that is renewed
GONE_S = 5.0  # when the connection of its reader has ended: it may come back at once


class LogLink(Protocol):
    def send(self, messages: list[wire.Message]) -> None: ...

    def close(self) -> None: ...


class SessionArrivals(Protocol):
    """What takes the connections that runners dial for sessions."""

    def arrived(
        self, hello: SessionHello, peer_name: str | None, where: Callable[[Duplex], None]
    ) -> wire.Rejected | None: ...

    def recheck(self) -> None: ...


class WantedLog(Struct, frozen=True):
    """What is read of an attempt's log: from an offset on, or so many lines at its end."""

    stream: str
    offset: int | None = None
    lines: int | None = None
    follow: bool = False
    is_split: bool = True  # without, the attempt has one log, if it is not of an earlier version
    hold: bool = False  # the attempt is attached, and stopped while this reader is far behind
    # Whether it has not ended, as far as was reported: the order to start it may be on its way to its node.
    is_live: Callable[[], bool] = lambda: False


class LogLinks:
    """Which connection leads to which node's logs."""

    def __init__(
        self,
        keys: LinkAuthenticator,
        require_active: Callable[[], None] = lambda: None,
        is_online: Callable[[str], bool] = lambda _: False,
        uploads: Uploads | None = None,
    ) -> None:
        self.keys = keys
        self._uploads = uploads
        self._hellos: dict[LogLink, tuple[wire.LogHello, str | None]] = {}
        self._require_active = require_active  # runners dial only the active coordinator
        self._is_online = is_online
        self._log_links: dict[str, LogLink] = {}
        self._waiting: dict[int, tuple[LogLink, asyncio.Future[Any]]] = {}
        self._next_id = 0
        self.sessions: SessionArrivals | None = None  # what takes the connections of sessions

    def serves_sessions(self, node: str) -> bool:
        """Whether the runner of a node can be asked for a session right now."""
        log_link = self._log_links.get(node)
        return log_link is not None and self._hellos[log_link][0].sessions

    def serves_inputs(self, node: str) -> bool:
        """Whether the runner of a node gives tasks standard input."""
        log_link = self._log_links.get(node)
        return log_link is not None and self._hellos[log_link][0].inputs

    def open_session(self, node: str, asked: OpenSession) -> bool:
        """Ask the runner of a node to dial; False if it cannot be asked."""
        if not self.serves_sessions(node):
            return False
        self._log_links[node].send([asked])
        return True

    def serves(self, node: str) -> bool:
        """Whether logs of a node can be read, now or when its runner is back: a runner may do without."""
        return node in self._log_links or not self._is_online(node)

    def opened(self, log_link: LogLink, hello: wire.LogHello, peer_name: str | None = None) -> bool:
        refusal = self.keys.accepts_node(hello.token, hello.node, peer_name=peer_name).refusal
        if hello.version != wire.VERSION or refusal:
            log_link.send([wire.Rejected("Unauthorized", refusal or STRANGER, False)])
            log_link.close()
            return False
        self._log_links[hello.node] = log_link
        self._hellos[log_link] = hello, peer_name
        if hello.files and self._uploads is not None:
            log_link.send([wire.FilesReady(self._uploads.max_bytes)])
        return True

    def is_open(self, node: str) -> bool:
        """Whether a node can be asked for its logs right now."""
        return node in self._log_links

    def put(self, log_link: LogLink, piece: wire.PutFile) -> None:
        """A piece of a file; the connection says whose."""
        if self._uploads is not None and (known := self._hellos.get(log_link)) is not None:
            self._uploads.arrived(log_link, known[0].node, piece)

    def recheck(self) -> None:
        """Close the connections whose token is no longer accepted; a runner with a new one dials again."""
        if self.sessions is not None:
            self.sessions.recheck()
        for log_link, (hello, peer_name) in list(self._hellos.items()):
            if self.keys.accepts_node(hello.token, hello.node, peer_name=peer_name).refusal:
                log_link.close()

    def closed(self, log_link: LogLink) -> None:
        self._hellos.pop(log_link, None)
        if self._uploads is not None:
            self._uploads.closed(log_link)
        self._log_links = {node: each for node, each in self._log_links.items() if each is not log_link}
        for way, answer in list(self._waiting.values()):
            if way is log_link and not answer.done():
                answer.set_exception(_no_log_link("its runner went away"))

    def arrived(self, log_link: LogLink, data: wire.LogData | UsageData | SnapshotsTold) -> None:
        """An answer; what another road says of it is not one."""
        if wrong := wire.why_wrong(data):
            raise wire.WireError(wrong)
        waiting = self._waiting.get(data.id)
        if waiting is not None and waiting[0] is log_link and not waiting[1].done():
            waiting[1].set_result(data)

    async def read(self, node: str, key: AttemptKey, wanted: WantedLog) -> AsyncIterator[LogChunk]:
        """Pieces of a log; with `follow`, until the attempt has ended and all of it was read."""
        renewing = asyncio.create_task(self._hold(node, key, wanted.stream)) if wanted.hold else None
        try:
            async with aclosing(self._pieces(node, key, wanted)) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            if renewing is not None:
                renewing.cancel()
                self._tell_held(node, wire.HoldLog(key, wanted.stream, GONE_S))

    async def _hold(self, node: str, key: AttemptKey, stream: str) -> None:
        """Say that a reader is there, also while it is too slow to ask for anything."""
        while True:
            await asyncio.sleep(HOLD_EVERY_S)
            self._tell_held(node, wire.HoldLog(key, stream, HOLD_S))

    def _tell_held(self, node: str, message: wire.HoldLog) -> None:
        log_link = self._log_links.get(node)
        if log_link is not None and self._hellos[log_link][0].holds:
            log_link.send([message])

    async def _pieces(self, node: str, key: AttemptKey, wanted: WantedLog) -> AsyncGenerator[LogChunk, None]:
        self._require_active()
        at, number, lines = wanted.offset, key[2], wanted.lines
        if at is None and lines is None:
            at = 0
        wait = is_told = False  # the first piece comes at once, even if there is nothing yet
        while True:
            data = await self._ask(
                node, key, wanted.stream, at, lines if at is None else None, wait, wanted.hold
            )
            if data.missing and wanted.stream == "stderr" and not wanted.is_split:
                raise one_log(key)
            if data.missing and data.ended:
                goes_on = wanted.is_live()
                if not goes_on and not is_told:
                    raise _no_log(node, key)
                yield LogChunk(0, b"", 0, number, not (goes_on and wanted.follow))
                if not (goes_on and wanted.follow):
                    return
                is_told = True
                await asyncio.sleep(UNKNOWN_EVERY_S)
                continue
            wait = wanted.follow
            at = data.offset + len(data.data)
            over = at >= data.size and (data.ended or not wait)
            yield LogChunk(data.offset, data.data, data.size, number, over, data.gap)
            if over:
                return

    async def times(self, node: str, key: AttemptKey) -> list[LogRow] | None:
        """When the logs of an attempt were written, and how they stand now; None if its node cannot tell."""
        log_link = self._log_links.get(node)
        if log_link is None or not self._hellos[log_link][0].times:
            return None
        try:
            data = await self._ask(node, key, TIMES, 0, None, wait=False, hold=False)
        except Unavailable:
            return None
        return read_rows(data.data) or None

    async def usage(self, node: str, keys: list[AttemptKey], points: int) -> UsageData | None:
        """What attempts of a node use; None if its runner is away, of an older version, or does not answer."""
        log_link = self._log_links.get(node)
        if log_link is None or not self._hellos[log_link][0].usage:
            return None
        self._next_id += 1
        id, answer = self._next_id, asyncio.get_running_loop().create_future()
        self._waiting[id] = (log_link, answer)
        log_link.send([ReadUsage(id, keys, points)])
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                found = await answer
        except (TimeoutError, Unavailable):
            return None
        finally:
            del self._waiting[id]
        return found if isinstance(found, UsageData) else None

    async def snapshots(
        self, node: str, key: AttemptKey, action: SnapshotAction, name: str, within_s: float
    ) -> SnapshotsTold:
        """Have the runner of a node do something with the snapshots of a VPS. Raises Unavailable."""
        log_link = self._log_links.get(node)
        if log_link is None or not self._hellos[log_link][0].snapshots:
            what = "is not connected" if log_link is None else "is of a version without snapshots"
            raise Unavailable(f"node {node} {what}", reason="NodeAway", retry_after_s=5.0)
        self._next_id += 1
        id, answer = self._next_id, asyncio.get_running_loop().create_future()
        self._waiting[id] = (log_link, answer)
        log_link.send([AskSnapshots(id, key, action, name)])
        try:
            async with asyncio.timeout(within_s):
                found = await answer
        except TimeoutError:
            raise Unavailable(
                f"node {node} did not answer within {within_s:.0f} s: it may still do it", reason="NodeAway"
            ) from None
        finally:
            del self._waiting[id]
        if not isinstance(found, SnapshotsTold):
            raise Unavailable(f"node {node} gave another answer", reason="NodeAway")
        return found

    async def _log_link(self, node: str) -> LogLink:
        """The way to a node. A runner that has just come back dials it a moment after it joined."""
        deadline = asyncio.get_running_loop().time() + LOG_LINK_WITHIN_S
        while node not in self._log_links:
            if asyncio.get_running_loop().time() >= deadline:
                raise (
                    _no_log_link(f"node {node} is not connected") if self.serves(node) else _not_served(node)
                )
            await asyncio.sleep(0.02)
        return self._log_links[node]

    async def _ask(
        self,
        node: str,
        key: AttemptKey,
        stream: str,
        offset: int | None,
        lines: int | None,
        wait: bool,
        hold: bool,
    ) -> wire.LogData:
        log_link = await self._log_link(node)
        self._next_id += 1
        id = self._next_id
        answer: asyncio.Future[wire.LogData] = asyncio.get_running_loop().create_future()
        self._waiting[id] = (log_link, answer)
        log_link.send([wire.ReadLog(id, key, stream, offset, lines, PIECE_BYTES, wait, hold)])
        within_s = ANSWER_WITHIN_S if self._is_online(node) else AWAY_WITHIN_S
        try:
            if wait:
                return await self._awaited(node, answer)
            async with asyncio.timeout(within_s):
                return await answer
        except TimeoutError:
            is_away = "" if within_s == ANSWER_WITHIN_S else " is offline, and"
            raise _no_log_link(f"node {node}{is_away} did not answer within {within_s:.0f} s") from None
        finally:
            del self._waiting[id]
            if not answer.done() or answer.cancelled():
                log_link.send([wire.CancelRead(id)])

    async def _awaited(self, node: str, answer: asyncio.Future[wire.LogData]) -> wire.LogData:
        """What a follower waits for, as long as its node is there: one that lost its power closes no connection."""
        while not (await asyncio.wait((answer,), timeout=CHECK_EVERY_S))[0]:
            if not self._is_online(node):
                raise _no_log_link(f"node {node} is offline")
        return answer.result()


def one_log(key: AttemptKey) -> BadRequest:
    """Standard error alone was asked for, of an attempt whose streams are in one log."""
    return BadRequest(
        f"stderr: attempt {key[2]} has one log with both streams, in the order they were written",
        reason="OneLog",
        hint="leave --stderr (stream=stderr) out to read it; jobs submitted with --split-output have two logs",
    )


def _no_log(node: str, key: AttemptKey) -> NotFound:
    return NotFound(
        f"there is no log of attempt {key[2]} on {node}: it never started, or its log was removed",
        reason="LogNotFound",
        hint="`phalanx why` tells how it ended; runner.log_keep_s and log_keep_bytes say how long logs are kept",
    )


def _not_served(node: str) -> Unavailable:
    return Unavailable(
        f"the log cannot be read: the runner of node {node} serves no logs",
        reason="LogNotServed",
        hint=f"it is not one of `phalanx runner`; look on {node} for what the task wrote",
    )


def _no_log_link(what: str) -> Unavailable:
    return Unavailable(
        f"the log cannot be read: {what}",
        reason="LogUnavailable",
        hint="it is on the node that ran the task, and can be read when its runner is back;"
        " there is no copy of it in the place for files",
        retry_after_s=5.0,
    )
