"""Under a flood: submits wait and are refused, while heartbeats and cancels are served, and logs take nothing away.

R16: heartbeats and cancels are answered with p99 below 500 ms while ten times as many submit as are carried out at
once.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from phalanx.api.server.limits import ServerLimits
from phalanx.core.model.resources import Capacity
from phalanx.link import wire
from tests.support.real_cluster import RealCluster, a_real_cluster
from tests.support.waiting import wait_until

SECONDS = 6.0
P99_S = 0.5
TRIES = 3  # a machine that is busy with something else may be slow once; what holds them up is so every time


@pytest.mark.timeout(240)
def test_r16_a_flood_of_submits_holds_up_neither_heartbeats_nor_cancels(tmp_path: Path) -> None:
    with a_real_cluster(tmp_path, {}, lost_after_s=60.0) as cluster:
        for tries_left in reversed(range(TRIES)):
            waiting = _waiting(cluster, 300)
            with _flood(cluster, 10 * ServerLimits().submits) as counts, _beating(cluster) as beats:
                cancels = _cancelled(cluster, waiting)
            assert counts["202"] > 100
            assert set(counts) <= {"202", "429"}, "a refused submit is asked to come again, and nothing else"
            if _is_quick(beats, cancels, tries_left):
                break


@pytest.mark.timeout(240)
def test_r16_followers_of_logs_hold_up_neither_heartbeats_nor_cancels(tmp_path: Path) -> None:
    with a_real_cluster(tmp_path, {"n1": "cpus=2,ram=4GiB"}, lost_after_s=60.0) as cluster:
        chatty = cluster.client.submit(
            shell="while :; do head -c 65536 /dev/zero | tr '\\0' x; sleep 0.05; done"
        )
        task = chatty.task_ids[0]
        wait_until(lambda: len(cluster.output(task)) > 1_000_000)
        for tries_left in reversed(range(TRIES)):
            waiting = _waiting(cluster, 300)
            with _flood(cluster, 150, task) as counts, _beating(cluster) as beats:
                cancels = _cancelled(cluster, waiting)
            assert counts["200"] > 10_000_000, "they did read"
            if _is_quick(beats, cancels, tries_left):
                break


def _is_quick(beats: list[float], cancels: list[float], tries_left: int) -> bool:
    """Whether the p99 of both is below the bound. If no try is left, it has to be."""
    for what, took in (("heartbeats", beats), ("cancels", cancels)):
        assert len(took) > 20 or tries_left, f"only {len(took)} {what}"
        p99_s = sorted(took)[int(len(took) * 0.99)] if took else P99_S
        assert p99_s < P99_S or tries_left, f"p99 of {len(took)} {what} is {p99_s * 1000:.0f} ms"
        if len(took) <= 20 or p99_s >= P99_S:
            return False
    return True


def _waiting(cluster: RealCluster, count: int) -> list[str]:
    """Jobs that no node can run, to be cancelled."""
    return [
        cluster.client.submit(command=["/bin/true"], cores=64, allow_infeasible=True).task_ids[0]
        for _ in range(count)
    ]


def _cancelled(cluster: RealCluster, ids: list[str]) -> list[float]:
    """How long each cancel took, one after another with a pause between, as long as the flood lasts."""
    took: list[float] = []
    end = time.monotonic() + SECONDS - 1.0
    pause = threading.Event()
    while ids and time.monotonic() < end:
        began = time.monotonic()
        cluster.client.cancel(ids.pop())
        took.append(time.monotonic() - began)
        pause.wait(0.02)
    return took


@contextmanager
def _flood(cluster: RealCluster, connections: int, task: str = "") -> Iterator[dict[str, int]]:
    """Its result is available when the block is left."""
    counts: dict[str, int] = {}
    where = ["127.0.0.1", str(cluster.port), str(cluster.user_token), str(connections), str(SECONDS)]
    argv = [sys.executable, "-m", "tests.e2e.flood", *where, *([task] if task else [])]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    try:
        yield counts
        counts |= json.loads(process.communicate(timeout=SECONDS + 60)[0])
    finally:
        process.kill()
        process.wait(5)


@contextmanager
def _beating(cluster: RealCluster) -> Iterator[list[float]]:
    """How long each heartbeat of one more runner took, while the block lasts."""
    took: list[float] = []
    stopped = threading.Event()
    thread = threading.Thread(target=_beat, args=(cluster, took, stopped), daemon=True)
    thread.start()
    try:
        yield took
    finally:
        stopped.set()
        thread.join(20)


def _beat(cluster: RealCluster, took: list[float], stopped: threading.Event) -> None:
    with socket.create_connection(("127.0.0.1", cluster.link_port), timeout=20) as connection:
        unpacker = wire.Unpacker()

        def answer_to(message: wire.Message, kind: type[wire.Welcome | wire.BeatAck]) -> wire.Message:
            connection.sendall(wire.pack(message))
            while True:
                for answer in unpacker.feed(connection.recv(65536)):
                    if isinstance(answer, kind):
                        return answer

        hello = wire.HelloMessage(
            wire.VERSION, str(cluster.node_token), "pulse", "life", "origin", Capacity(1, 2**30), 0, []
        )
        welcome = answer_to(hello, wire.Welcome)
        assert isinstance(welcome, wire.Welcome)
        while not stopped.is_set():
            began = time.monotonic()
            answer_to(wire.Beat(welcome.epoch, began, [], welcome.generation), wire.BeatAck)
            took.append(time.monotonic() - began)
            stopped.wait(0.02)
