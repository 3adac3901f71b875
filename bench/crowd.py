"""Many simulated runners in one process: real connections and the real messages, but no processes.

Every start is answered at once by its end, all of one message in one message back. Reads JSON on stdin: port, token,
runners, cores, and the reported run time of tasks; writes to stdout when all have joined, starts to answer at the next
line, and ends with stdin.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time

from phalanx.core.model.orders import Ended, Exit, Report, Start, Why
from phalanx.core.model.resources import Capacity
from phalanx.link import wire

JOIN_S = 30.0


class FakeRunner:
    """One runner, as far as the coordinator can see."""

    def __init__(self, port: int, token: str, number: int, cores: int, run_s: float) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=JOIN_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.heartbeat_s = 0.0  # until it was welcomed
        self.ended = 0
        self._run_s = run_s
        self._epoch = 0
        self._generation = 0  # of its lease
        self._unpacker = wire.Unpacker()
        name, capacity = f"pretender-{number}", Capacity(cores, 64 << 30)
        self._say(wire.HelloMessage(wire.VERSION, token, name, f"life-{number}", name, capacity, 0, []))

    def hear(self) -> bool:
        """Take what has arrived and answer it; False when the coordinator closed the connection."""
        data = self.sock.recv(1 << 20)
        for message in self._unpacker.feed(data):
            match message:
                case wire.Orders():
                    self._obey(message)
                case wire.Welcome():
                    self._epoch, self.heartbeat_s = message.epoch, message.heartbeat_s
                    self._generation = message.generation
                case wire.Rejected():
                    raise RuntimeError(message.message)
        return bool(data)

    def beat(self) -> None:
        """It holds nothing: what was started has ended."""
        self._say(wire.Beat(self._epoch, time.time(), [], self._generation))

    def _obey(self, message: wire.Orders) -> None:
        now = time.time()
        exit = Exit(Why.NONE, 0, now - self._run_s, now)
        reports: list[Report] = [
            Ended(order.key, exit) for order in message.orders if isinstance(order, Start)
        ]
        self.ended += len(reports)
        if reports:
            self._say(wire.Reports(message.epoch, reports, self._generation))

    def _say(self, message: wire.Message) -> None:
        self.sock.sendall(wire.pack(message))


def main(port: int, token: str, runners: int, cores: int, run_s: float) -> None:
    crowd = [FakeRunner(port, token, number, cores, run_s) for number in range(runners)]
    for each in crowd:
        while not each.heartbeat_s:
            each.hear()
    print("{}", flush=True)  # all have joined; orders wait in the sockets
    if sys.stdin.readline():
        serve(crowd)


def serve(crowd: list[FakeRunner]) -> None:
    """Answer orders and send heartbeats until stdin ends or the coordinator does."""
    by_fd = {each.sock.fileno(): each for each in crowd}
    poll = select.epoll()
    for fd in (*by_fd, sys.stdin.fileno()):
        poll.register(fd, select.EPOLLIN)
    beat_at = 0.0
    while True:
        for fd, _ in poll.poll(0.1):
            if fd not in by_fd or not by_fd[fd].hear():
                return
        if time.monotonic() >= beat_at:
            beat_at = time.monotonic() + crowd[0].heartbeat_s
            for each in crowd:
                each.beat()


if __name__ == "__main__":
    main(**json.loads(sys.stdin.readline()))
