"""Many runners in one process: each with its own engine, the real messages and two connections, but no processes.

The engines are those of `phalanx runner` (`runner/turn.py`); only the keeper is simulated: an attempt starts when it
is ordered, and ends after a while. Reads JSON on stdin: port, token, the first number, how many, how long tasks run,
and how many devices each node has (then tasks run for a random time around that); writes to stdout when all have
joined, and ends with stdin.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from contextlib import suppress
from typing import cast

import uvloop

from phalanx.core.model.orders import AttemptKey
from phalanx.core.model.resources import Capacity, Device
from phalanx.core.runner.attempts import ProcessEnd
from phalanx.core.runner.effects import Halt, Release, RunnerEffect, Spawn
from phalanx.link import wire
from phalanx.runner.turn import RunnerEngine

GATHER_S = 0.02
HOST = "127.0.0.1"


class Line(asyncio.Protocol):
    """One connection, cut into messages."""

    def __init__(self, runner: FakeRunner) -> None:
        self._runner = runner
        self._unpacker = wire.Unpacker()
        self._transport: asyncio.Transport | None = None
        self.ended = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for message in self._unpacker.feed(data):
            self._runner.receive(message)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()

    def send(self, message: wire.Message) -> None:
        assert self._transport is not None
        self._transport.write(wire.pack(message))

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()


class FakeRunner:
    """One runner, as far as the coordinator can see."""

    def __init__(self, number: int, token: str, run_s: float, gpus: int = 0) -> None:
        name = f"pretender-{number}"
        self.engine = RunnerEngine(name, f"life-{number}", name, token, _capacity(number, gpus), HOST)
        self._is_varied = gpus > 0
        self.joined = asyncio.Event()
        self._run_s = run_s
        self._line: Line | None = None
        self._loop = asyncio.get_running_loop()

    async def live(self, port: int) -> None:
        """Connect, join, send heartbeats; when the connection ends, connect again after a moment, as runners do."""
        while True:
            with suppress(OSError):
                await self._http_request(port)
            await asyncio.sleep(random.uniform(0.05, 0.8))

    async def _http_request(self, port: int) -> None:
        engine = self.engine
        self.joined.clear()
        _, line = await self._loop.create_connection(lambda: Line(self), HOST, port)
        self._line = line
        line.send(engine.hello(time.time()))
        await _either(self.joined, line.ended)
        if line.ended.is_set():
            return
        _, log_link = await self._loop.create_connection(lambda: Line(self), HOST, port)
        log_link.send(wire.LogHello(wire.VERSION, engine.token, engine.node, engine.incarnation))
        pause_s = random.uniform(0, engine.heartbeat_s)  # they were not started together
        while not await _either(line.ended, within_s=pause_s):
            line.send(engine.beat(time.time()))
            self._tell()
            pause_s = engine.heartbeat_s
        log_link.close()
        engine.welcomed = False

    def receive(self, message: wire.Message) -> None:
        if isinstance(message, wire.ReadLog | wire.CancelRead):
            return
        for effect in self.engine.receive(message, time.time()):
            self._do(effect)
        if self.engine.welcomed:
            self.joined.set()

    def _do(self, effect: RunnerEffect) -> None:
        state, now = self.engine.state, time.time()
        match effect:
            case Spawn():
                key = effect.start.key
                if effect.held:
                    state.process_ready(key)
                else:
                    self._start(key, now)
            case Release():
                self._start(effect.key, now)
            case Halt():
                self._end(effect.key, 15)
        self._loop.call_later(GATHER_S, self._tell)

    def _start(self, key: AttemptKey, now: float) -> None:
        self.engine.state.process_started(key, now)
        run_s = self._run_s * random.uniform(0.05, 1.95) if self._is_varied else self._run_s
        self._loop.call_later(run_s, self._end, key, None)

    def _end(self, key: AttemptKey, signal: int | None) -> None:
        now = time.time()
        end = ProcessEnd(None if signal else 0, signal, False, None, now - self._run_s, now)
        for effect in self.engine.state.process_ended(key, end):
            self._do(effect)
        self._loop.call_later(GATHER_S, self._tell)

    def _tell(self) -> None:
        reports = self.engine.reports()
        if reports is not None and self._line is not None:
            self._line.send(reports)


async def _either(*events: asyncio.Event, within_s: float | None = None) -> bool:
    """True once one of them is set, False if the time is over before."""
    waits = [asyncio.ensure_future(each.wait()) for each in events]
    done, _ = await asyncio.wait(waits, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    for each in waits:
        each.cancel()
    return bool(done)


def _capacity(number: int, gpus: int) -> Capacity:
    """A small node, or one of eight to a rack with devices."""
    if not gpus:
        return Capacity(8, 64 << 30)
    devices = tuple(Device(index, "h100", 80 << 30) for index in range(gpus))
    return Capacity(64, 512 << 30, (), devices, {"rack": f"r{number // 8}", "block": f"b{number // 64}"})


async def crowd(port: int, token: str, first: int, runners: int, run_s: float, gpus: int = 0) -> None:
    everybody = [FakeRunner(first + at, token, run_s, gpus) for at in range(runners)]
    lives = [asyncio.ensure_future(each.live(port)) for each in everybody]
    for each in everybody:
        await each.joined.wait()
    print("{}", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    for life in lives:
        life.cancel()


if __name__ == "__main__":
    uvloop.run(crowd(**json.loads(sys.stdin.readline())))
