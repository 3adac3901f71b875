"""The unix socket between a runner and its keeper: in order, without loss, until one of the two dies.

A stopped keeper can still be connected to, because the kernel accepts, and it answers when it is resumed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from phalanx.runner.processes import Processes
from phalanx.sim.keeper import Keeper, requests_in

if TYPE_CHECKING:
    from phalanx.sim.runner import SimulatedRunner

NEWS_S = 0.0005  # travel time of a message


class KeeperSocket:
    """One connection: a transport to the runner, a link to the keeper."""

    def __init__(
        self,
        runner: SimulatedRunner,
        keeper: Keeper,
        processes: Processes,
        passes: Callable[[list[Any]], bool],
    ) -> None:
        self._runner = runner
        self._keeper = keeper
        self._processes = processes
        self._passes = passes
        self._is_open = True
        self._after = keeper.world.after

    # The runner's side.

    def write(self, data: bytes) -> None:
        requests = [request for request in requests_in(data) if self._passes(request)]
        self._after(NEWS_S, self._keeper.call, self._keeper.received, requests)

    def is_closing(self) -> bool:
        return not self._is_open

    def close(self) -> None:
        """The runner closes; it is notified in the next turn."""
        if self._is_open:
            self.runner_died()
            self._runner.events.call_soon(self._processes.connection_lost, None)

    abort = close

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def runner_died(self) -> None:
        self._is_open = False
        self._after(NEWS_S, self._keeper.call, self._keeper.lost, self)

    # The keeper's side.

    def send(self, lines: list[str]) -> None:
        body = f"[{','.join(lines)}]".encode()
        self._after(NEWS_S, self._runner.call, self._arrived, len(body).to_bytes(4, "big") + body)

    def hang_up(self) -> None:
        self._after(NEWS_S, self._runner.call, self._ended)

    def _arrived(self, frame: bytes) -> None:
        if self._is_open:
            self._runner.events.call_soon(self._processes.data_received, frame)

    def _ended(self) -> None:
        if self._is_open:
            self._is_open = False
            self._runner.events.call_soon(self._processes.connection_lost, None)
