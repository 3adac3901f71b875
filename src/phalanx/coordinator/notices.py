"""Notices about elastic nodes, for what starts and stops machines: a webhook, or a program of the operator.

The active coordinator tells both, in order and one notice at a time, when a node is disabled or enabled, or when work
waits that no enabled node can take. A turn only puts notices into a queue of bounded length. Each delivery has a time
limit and is tried a few times. A notice is not durable: one that is lost with its coordinator is not sent again, so a
receiver compares with `GET /v1/nodes` when it starts.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, json

from phalanx.config import task_environment
from phalanx.coordinator.turn import Turn
from phalanx.coordinator.views_cluster import node_status
from phalanx.core.cluster.events import NodeDisabled, NodeEnabled, NodeNeeded
from phalanx.core.cluster.nodes import NodeState
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.resources import Cores, Request
from phalanx.errors import PhalanxError
from phalanx.logger import logger
from phalanx.settings_elastic import Elastic
from phalanx.tokenfile import read_token

if TYPE_CHECKING:
    import httpx

log = logger("coordinator")
NOTICES_MAX = 1000  # that wait to be delivered
TRIES = 3
PAUSE_S = 1.0  # before the second try; four times as long before the third
OUTPUT_MAX = 2000  # bytes of what a program says
OUTPUT_WAIT_S = 0.5  # for output after the program's end: what it started may hold the pipe open


class NodeFacts(Struct, frozen=True):
    """A node, as a notice describes it."""

    name: str
    status: str
    address: str
    cores: Cores
    memory_bytes: int
    gpus: int
    gpu_kinds: list[str]
    labels: dict[str, str]
    tasks: int  # attempts that stand there


class Notice(Struct, frozen=True, kw_only=True):
    """What the receiver gets, as JSON. `id` is the same for every try."""

    id: str
    event: Literal["disabled", "enabled", "needed"]
    at: float
    reason: str
    automatic: bool = True
    node: NodeFacts | None = None  # of a need: a disabled node that could hold the task, if there is one
    tasks: int = 0  # that wait, counted up to the number that matters
    job: str = ""  # the first that waits
    request: Request | None = None  # what the first group of that job asks for, for each task


class Undelivered(Exception):
    """One try failed. `is_final` if another one cannot help."""

    def __init__(self, text: str, *, is_final: bool = False) -> None:
        super().__init__(text)
        self.is_final = is_final


class Notices:
    """The notices that wait, and the way to their receivers."""

    def __init__(self, settings: Elastic, pause_s: float = PAUSE_S) -> None:
        self._settings = settings
        self._pause_s = pause_s
        self._waiting: deque[Notice] = deque()
        self._wake = asyncio.Event()
        self._client: httpx.AsyncClient | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether there is anybody to tell."""
        return self._settings.webhook is not None or bool(self._settings.command)

    def note(self, turn: Turn, state: ClusterState) -> None:
        """A turn is durable: queue a notice for each of its events that is about elastic nodes. It never waits."""
        if not self.is_wanted:
            return
        for place, event in enumerate(turn.events):
            if isinstance(event, NodeDisabled | NodeEnabled | NodeNeeded):
                id = f"{state.epoch}-{turn.revision}-{place}"
                self._waiting.append(notice_of(event, id, state))
                self._wake.set()
        while len(self._waiting) > NOTICES_MAX:
            lost = self._waiting.popleft()
            log.warning("too many notices about nodes wait, the oldest is dropped", **_shown(lost))

    async def deliver(self) -> None:
        """Deliver what is queued, until cancelled."""
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while self._waiting:
                    await self._tell(self._waiting.popleft())
        finally:
            if self._waiting:
                log.warning("notices about nodes were not delivered", count=len(self._waiting))
            if self._client is not None:
                await self._client.aclose()

    async def _tell(self, notice: Notice) -> None:
        body = json.encode(notice)
        if self._settings.webhook is not None:
            await self._try("webhook", notice, body)
        if self._settings.command:
            await self._try("command", notice, body)

    async def _try(self, way: Literal["webhook", "command"], notice: Notice, body: bytes) -> None:
        """Deliver one notice one way. A failure is logged and ends there."""
        for number in range(1, TRIES + 1):
            try:
                async with asyncio.timeout(self._settings.notify_timeout_s):
                    await (self._post(body) if way == "webhook" else self._run(notice, body))
            except (Undelivered, TimeoutError) as error:
                why = str(error) or f"it took longer than {self._settings.notify_timeout_s:g} s"
                is_last = number == TRIES or (isinstance(error, Undelivered) and error.is_final)
                log.warning(
                    "a notice about an elastic node was not delivered",
                    way=way,
                    error=why,
                    attempt=number,
                    gives_up=is_last,
                    **_shown(notice),
                )
                if is_last:
                    return
                await asyncio.sleep(self._pause_s * 4 ** (number - 1))
            else:
                log.info("a notice about an elastic node was delivered", way=way, **_shown(notice))
                return

    async def _post(self, body: bytes) -> None:
        import httpx  # a tenth of a coordinator's start, and most have no webhook

        assert self._settings.webhook is not None
        headers = {"Content-Type": "application/json"}
        try:
            if self._settings.webhook_token_file is not None:
                headers["Authorization"] = f"Bearer {read_token(self._settings.webhook_token_file)!s}"
            if self._client is None:
                # No proxy of the environment gets to see the token. Without TLS no certificates are loaded.
                self._client = httpx.AsyncClient(
                    verify=self._settings.webhook.startswith("https:"),
                    trust_env=False,
                    follow_redirects=False,
                )
            async with self._client.stream(
                "POST", self._settings.webhook, content=body, headers=headers,
                timeout=self._settings.notify_timeout_s,
            ) as answer:  # fmt: skip
                status = answer.status_code  # what else it says is not read
        except (httpx.HTTPError, PhalanxError, OSError) as error:
            raise Undelivered(f"{type(error).__name__}: {error}") from error
        if not 200 <= status < 300:
            raise Undelivered(f"HTTP status {status}", is_final=status < 500 and status not in (408, 429))

    async def _run(self, notice: Notice, body: bytes) -> None:
        """Start the program with the document on its standard input. It and what it started end with the time limit."""
        environment = task_environment() | {
            "PHALANX_EVENT": notice.event,
            "PHALANX_NODE": "" if notice.node is None else notice.node.name,
        }
        try:
            process = await asyncio.create_subprocess_exec(
                *self._settings.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise Undelivered(f"{self._settings.command[0]} cannot be started: {error}") from error
        assert process.stdin is not None
        assert process.stdout is not None
        reading = asyncio.ensure_future(_output(process.stdout))
        try:
            with suppress(ConnectionError):  # it may end without having read all of it
                process.stdin.write(body + b"\n")
                await process.stdin.drain()
                process.stdin.close()
            code = await process.wait()
            await asyncio.wait({reading}, timeout=OUTPUT_WAIT_S)
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
            reading.cancel()
        if code != 0:
            said = reading.result() if reading.done() and not reading.cancelled() else b""
            raise Undelivered(f"it ended with code {code}: {said.decode('utf-8', 'replace').strip()}")


def notice_of(event: NodeDisabled | NodeEnabled | NodeNeeded, id: str, state: ClusterState) -> Notice:
    """What is told about an event."""
    known = state.nodes.get(event.node)
    node = None if known is None else _facts(known)
    if not isinstance(event, NodeNeeded):
        word: Literal["disabled", "enabled"] = "disabled" if isinstance(event, NodeDisabled) else "enabled"
        return Notice(
            id=id, event=word, at=event.at, reason=event.reason, automatic=event.automatic, node=node
        )
    job = state.jobs.get(event.first_job)
    return Notice(
        id=id,
        event="needed",
        at=event.at,
        reason=event.reason,
        node=node,
        tasks=event.tasks,
        job=event.first_job,
        request=None if job is None else job.job.groups[0].request,
    )


def _facts(node: NodeState) -> NodeFacts:
    has = node.capacity
    kinds = sorted({device.kind for device in has.devices})
    return NodeFacts(
        node.name,
        node_status(node),
        node.address,
        has.cores,
        has.memory_bytes,
        len(has.devices),
        kinds,
        dict(has.labels),
        len(node.attempts),
    )


def _shown(notice: Notice) -> dict[str, Any]:
    name = "" if notice.node is None else notice.node.name
    return {"event_kind": notice.event, "node": name, "id": notice.id}


async def _output(stream: asyncio.StreamReader) -> bytes:
    """What a program says, read to its end and kept in part."""
    kept = b""
    while chunk := await stream.read(1 << 16):
        kept = (kept + chunk)[:OUTPUT_MAX]
    return kept
