"""A coordinator process: wiring, and nothing else.

The store is opened, a term begins, and three doors open: REST for people, frames for runners, and the loop
between them. A term that ends because another coordinator took over ends the process.
"""

from __future__ import annotations

import asyncio
import hmac
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn
import uvloop

from phalanx.api.app import build_app
from phalanx.api.auth import Tokens
from phalanx.api.protocol import BoundedProtocol
from phalanx.clock import Clock, SteadyClock
from phalanx.coordinator.commands import CoordinatorCommands
from phalanx.coordinator.feed import Feed
from phalanx.coordinator.heart import Turn
from phalanx.coordinator.links import Links
from phalanx.coordinator.logs import LogRoads
from phalanx.coordinator.loop import Loop
from phalanx.coordinator.server import serve
from phalanx.core.cluster.effects import Settle
from phalanx.core.cluster.state import Rules
from phalanx.core.model.plan import Policy
from phalanx.diary import diary, open_diary
from phalanx.errors import PhalanxError
from phalanx.settings import Settings
from phalanx.store.protocol import Fenced, Store, StoreError
from phalanx.store.sqlite import SqliteStore
from phalanx.tokenfile import ensure_token

log = diary("coordinator")


class Coordinator:
    """The parts of one coordinator, wired together. `serve` and `phalanx.local()` use the same."""

    def __init__(
        self, store: Store, rules: Rules, node_token: str, retries: int, clock: Clock | None = None
    ) -> None:
        clock = clock or SteadyClock()

        def accepts(offered: str) -> bool:
            return hmac.compare_digest(offered.encode(), node_token.encode())

        self.store = store
        self.loop = Loop(store, rules, Policy(), clock)
        self.feed = Feed()
        self.roads = LogRoads(accepts)
        self.links = Links(lambda: self.loop.state, accepts)
        self.commands = CoordinatorCommands(self.loop, store, self.feed, self.roads, clock, retries)
        self.loop.listen(self._dispatch)

    async def open(self) -> None:
        await self.loop.open()
        self.feed.begin(self.loop.state.revision)

    def _dispatch(self, turn: Turn) -> None:
        """The turn is durable: say it."""
        self.links.dispatch(turn.effects)
        self.feed.publish(turn)
        for effect in turn.effects:
            if type(effect) is Settle and effect.position is None:
                self.links.forget(effect.job)


def run(settings: Settings) -> int:
    """Run a coordinator until it is told to stop; the exit code."""
    open_diary()
    try:
        return uvloop.run(_serve(settings))
    except (StoreError, PhalanxError, OSError) as error:
        log.error("the coordinator cannot go on", error=str(error))
        return 1


def rules_of(settings: Settings) -> Rules:
    """The rules that follow from the settings: a runner stops its tasks well before it may be declared lost."""
    section = settings.coordinator
    return Rules(
        heartbeat_s=section.heartbeat_s,
        lost_after_s=section.lost_after_s,
        self_fence_s=section.lost_after_s * 2 / 3,
        loss_limit=section.loss_limit,
        aging_s=float(section.aging_s),
        stuck_after_s=3 * section.lost_after_s,
        pending_max=section.pending_limit,
    )


async def _serve(settings: Settings) -> int:
    section = settings.coordinator
    state_dir = Path(section.state_dir)
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    token, node_token = ensure_token(section.token_file), ensure_token(section.node_token_file)
    coordinator = Coordinator(
        SqliteStore(state_dir / "phalanx.db"), rules_of(settings), node_token, section.max_task_retries
    )
    await coordinator.open()
    server, _ = await serve(
        section.bind, section.link_port, coordinator.links, coordinator.roads, coordinator.loop.post
    )
    app = build_app(coordinator.commands, Tokens([("admin", token)]), section.hosts)
    rest = _rest_server(app, section.bind, section.port)
    log.info(
        "coordinator ready", address=f"http://{section.bind}:{section.port}", link_port=section.link_port
    )
    try:
        return await _until_stopped(coordinator.loop.run(), rest, coordinator.feed)
    finally:
        server.close()
        await coordinator.store.close()


class RestServer(uvicorn.Server):
    """uvicorn without its own signal handling, which would end the process before our last words."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _rest_server(app: Callable[..., Awaitable[None]], host: str, port: int) -> RestServer:
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=2,
        http=BoundedProtocol,
        ws="none",
        proxy_headers=False,
        server_header=False,
        date_header=False,
    )
    return RestServer(config)


async def _until_stopped(term: Awaitable[None], rest: RestServer, feed: Feed) -> int:
    """Serve until SIGTERM or SIGINT, or until the term is over."""

    def stop(number: int) -> None:
        feed.close()
        rest.handle_exit(number, None)

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    turning = asyncio.ensure_future(term)
    serving = asyncio.ensure_future(rest.serve())
    await asyncio.wait({turning, serving}, return_when=asyncio.FIRST_COMPLETED)
    rest.should_exit = True
    if turning.done():
        await serving
        return _how_it_ended(turning)
    turning.cancel()
    await asyncio.gather(turning, return_exceptions=True)
    return 0


def _how_it_ended(turning: asyncio.Future[None]) -> int:
    error = turning.exception()
    if isinstance(error, Fenced):
        log.error("another coordinator took over; this one stops", error=str(error))
        return 6
    if error is not None:
        raise error
    return 0
