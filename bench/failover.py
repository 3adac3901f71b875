"""Failover under load: from the moment the leader is harmed until a submit is accepted, and until its task runs.

    .venv/bin/python -m bench.failover [--kills 50] [--pauses 20] [--cuts 20] [--lease 6]

Three coordinators, three etcd members and four runners, each a process, in network namespaces with TLS where we are
root, else on loopback behind proxies. Users submit all the time. In each round the leader is killed (-9), paused
(SIGSTOP) or cut off from all others; at that moment a client that follows the leader is given one more job. Everything
but the leader's lease is at its default (heartbeats 5 s).
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.figures import quantile
from phalanx.client.leader import PATIENCE_S
from phalanx.errors import PhalanxError
from tests.chaos import life, namespaces
from tests.chaos.chaos_cluster import CORES, ChaosCluster, Shape
from tests.chaos.clock import clock
from tests.chaos.faults import Harm, Undo
from tests.chaos.leaders import LeaderWatch
from tests.chaos.ledger import read_lives
from tests.chaos.network import Network
from tests.chaos.parts import LIVES
from tests.chaos.proxies import Proxies
from tests.chaos.workload import Users
from tests.support.waiting import wait_until

TARGET_S = 10.0
WHOLE_S = 90.0


class Bench:
    """A cluster with users, and what each round took."""

    def __init__(self, folder: Path, network: Network, lease_s: float) -> None:
        self._folder = folder
        shape = Shape(3, 3, 4, lease_s=lease_s, heartbeat_s=5.0, lost_after_s=30.0)
        self._cluster = ChaosCluster(folder, shape, network)
        self._harm = Harm(self._cluster)
        self._leaders = LeaderWatch(self._cluster.addresses, str(self._cluster.token), self._cluster.tls)
        self._users = Users(self._cluster, folder / LIVES, folder / "locks", open_max=4)
        self._rounds = 0

    def open(self) -> None:
        self._cluster.start()
        self._leaders.open()
        self._users.begin(1, 2)

    def close(self) -> None:
        self._users.close()
        self._leaders.close()
        self._cluster.stop()
        self._cluster.network.close()

    def round(self, kind: str) -> tuple[float, float]:
        """Harm the leader once; returns the seconds until a submit was accepted and until its task ran."""
        self._rounds += 1
        self._wait_whole()
        leader, epoch = self._leaders.leader() or "", self._leaders.epoch
        with self._cluster.client(PATIENCE_S) as client:
            client.cluster()  # it knows the leader, as a client that was in use does
            undo, began_at = self._harmed(kind, leader), clock()
            job = self._accepted(client, f"failover-{self._rounds}")
            accepted_s = clock() - began_at
        if self._leaders.epoch <= epoch:
            wait_until(lambda: self._leaders.epoch > epoch, WHOLE_S, "a newer epoch")
        wait_until(lambda: self._life(job) is not None, WHOLE_S, "the task runs")
        ran_at = self._life(job) or 0.0
        undo()
        return accepted_s, ran_at - began_at

    def _harmed(self, kind: str, leader: str) -> Undo:
        hurt: dict[str, Callable[[], Undo]] = {
            "kill": lambda: self._harm.kill(leader),
            "pause": lambda: self._harm.pause(leader),
            "cut": lambda: self._harm.part(leader, self._harm.everybody_but(leader)),
        }
        return hurt[kind]()

    def _accepted(self, client: object, request: str) -> str:
        words = [sys.executable, "-I", "-S", life.__file__, str(self._users.lives), str(self._users.locks)]
        while True:
            try:
                reply = client.submit(  # type: ignore[attr-defined]
                    command=[*words, str(CORES), "0.1", "0"], name=request, request_id=request, priority=100
                )
            except PhalanxError:
                continue
            return str(reply.task_ids[0])

    def _life(self, job: str) -> float | None:
        """When the job's first attempt began."""
        began = [each.started_at for each in read_lives(self._users.lives).values() if each.job == job]
        return min(began, default=None)

    def _wait_whole(self) -> None:
        with self._cluster.client() as client:
            wait_until(lambda: self._cluster.is_whole(client), WHOLE_S, "all nodes are online")
        wait_until(self._all_ready, WHOLE_S, "all coordinators are ready")
        wait_until(lambda: self._leaders.leader() is not None, WHOLE_S, "a coordinator leads")

    def _all_ready(self) -> bool:
        return all(self._cluster.is_ready(name) for name in self._cluster.coordinators)


def main() -> int:
    given = _options()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # and clean up on the way
    reason = namespaces.why_not()
    if not reason and not given.inside:
        again = ["unshare", "--net", sys.executable, "-m", "bench.failover", *sys.argv[1:], "--inside"]
        os.execvp("unshare", again)  # noqa: S606 (it is ourselves again, in our own namespace)
    network: Network = Proxies() if reason else namespaces.Namespaces()
    print(
        f"on loopback behind proxies: {reason}" if reason else "in network namespaces, with TLS", flush=True
    )
    folder = Path(tempfile.mkdtemp(prefix="phalanx-failover-"))
    bench = Bench(folder, network, given.lease)
    met = True
    try:
        bench.open()
        for kind, rounds in (("kill", given.kills), ("pause", given.pauses), ("cut", given.cuts)):
            met = _measured(bench, kind, rounds) and met
    finally:
        bench.close()
    shutil.rmtree(folder, ignore_errors=True)
    return int(not met)


def _measured(bench: Bench, kind: str, rounds: int) -> bool:
    """Whether the target was met, after so many rounds of one kind."""
    taken: list[tuple[float, float]] = []
    for at in range(rounds):
        taken.append(bench.round(kind))
        print(
            f"{kind} {at + 1}: accepted after {taken[-1][0]:.2f} s, ran after {taken[-1][1]:.2f} s",
            flush=True,
        )
    for name, values in zip(("accepted", "ran"), zip(*taken, strict=True), strict=False):
        row = (quantile([*values], share) for share in (0.5, 0.99, 1.0))
        print(
            f"{kind} × {rounds}, {name}: " + "  ".join(f"{each:.2f} s" for each in row),
            "(p50 p99 max)",
            flush=True,
        )
    return not taken or quantile([each[0] for each in taken], 0.99) <= TARGET_S


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--pauses", type=int, default=20)
    parser.add_argument("--cuts", type=int, default=20)
    parser.add_argument("--lease", type=float, default=6.0)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
