"""A runner that joins and beats but never starts anything: what a broken runner looks like from outside."""

from __future__ import annotations

import socket
import threading
import time
from types import TracebackType
from typing import Self

from phalanx.core.model.orders import AttemptKey, Phase, Start
from phalanx.core.model.resources import Capacity
from phalanx.link import wire
from tests.support.real_cluster import RealCluster


class SilentRunner:
    """Uses the real protocol over a real connection, and ignores every order; or lists them, and does nothing."""

    def __init__(self, cluster: RealCluster, name: str, beat_s: float = 0.2, accepts: bool = False) -> None:
        self._accepts = accepts
        self._cluster = cluster
        self._name = name
        self._beat_s = beat_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join(5)

    def _run(self) -> None:
        unpacker, epoch, generation, seen_at, beat_at = wire.Unpacker(), 0, 0, 0.0, 0.0
        held: list[tuple[AttemptKey, Phase]] = []
        with socket.create_connection(("127.0.0.1", self._cluster.link_port)) as connection:
            hello = wire.HelloMessage(
                wire.VERSION,
                str(self._cluster.node_token),
                self._name,
                "life",
                "origin",
                Capacity(4, 2**30),
                0,
                [],
            )
            connection.sendall(wire.pack(hello))
            while not self._stopped.is_set():
                connection.settimeout(max(0.001, min(self._beat_s, beat_at - time.monotonic())))
                try:
                    for message in unpacker.feed(connection.recv(65536)):
                        if isinstance(message, wire.Welcome):
                            epoch, generation = message.epoch, message.generation
                        if isinstance(message, wire.BeatAck):
                            seen_at = message.at
                        if isinstance(message, wire.Orders) and self._accepts:
                            held += [
                                (order.key, Phase.QUEUED)
                                for order in message.orders
                                if isinstance(order, Start)
                            ]
                except TimeoutError:
                    pass
                if epoch and time.monotonic() >= beat_at:  # not with each answer: that would be a flood
                    beat_at = time.monotonic() + self._beat_s
                    beat = wire.Beat(
                        epoch,
                        time.monotonic(),
                        held,
                        generation,
                        seen_at=seen_at,
                        starts_expire=self._accepts,
                    )
                    connection.sendall(wire.pack(beat))
