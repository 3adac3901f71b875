"""`scripts/chaos`: build a cluster, inject faults, let it heal, judge it. Exit code 1 if a promise was broken."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import msgspec

import phalanx
from phalanx.errors import PhalanxError
from tests.chaos import answers, namespaces, slow
from tests.chaos.chaos_cluster import CORES, DEVICES, ChaosCluster, Shape
from tests.chaos.clock import clock
from tests.chaos.evidence import Evidence
from tests.chaos.faults import KINDS
from tests.chaos.flow import Flow
from tests.chaos.leaders import LeaderWatch, led, reigns, rivals
from tests.chaos.ledger import read_lives
from tests.chaos.network import Network
from tests.chaos.parts import LIVES, Part, living
from tests.chaos.proxies import Proxies
from tests.chaos.storm import Storm
from tests.chaos.table import lines
from tests.chaos.verdict import HEAL_S, violations
from tests.chaos.workload import Users
from tests.support.waiting import wait_until
from tests.support.wall_clock import has_compiler

USERS = 4  # the first is the admin
SLOW = "s1"  # where the slow clients are
TELL_EVERY_S = 10.0


@dataclass(frozen=True)
class Plan:
    """One run: its seed, its length, and how dense the faults and the work are."""

    seed: int
    seconds: float
    gap_s: float = 2.4
    open_max: int = 8  # tasks of one user
    kinds: tuple[str, ...] = ()  # of faults; none: all
    heal_s: float = HEAL_S + 30.0  # how long we wait for it
    with_slow: bool = True  # clients, beside the users
    planted: tuple[str, ...] = ()  # a program in place of every coordinator's
    stages: int = 0  # of a workflow beside the users; 0: there is none


class Rig:
    """A cluster, its users, its observers, and the storm."""

    def __init__(self, folder: Path, shape: Shape, network: Network, plan: Plan) -> None:
        self.folder, self.plan = folder, plan
        self.cluster = ChaosCluster(folder, shape, network, [*plan.planted])
        self.leaders = LeaderWatch(self.cluster.addresses, str(self.cluster.token), self.cluster.tls)
        self.users = Users(self.cluster, folder / LIVES, folder / "locks", plan.open_max)
        self.storm = Storm(self.cluster, Random(plan.seed), self.leaders.leader, folder / "faults.jsonl")
        self.storm.gap_s, self.storm.kinds = plan.gap_s, plan.kinds
        self.flow = Flow(self.cluster, folder, plan.seed, plan.stages, plan.seconds) if plan.stages else None
        self._told_at = 0.0
        self._slow: Part | None = None

    def run(self, script: Callable[[Rig], None] | None = None) -> Evidence:
        """Start, storm (or play a script instead), heal, and gather what is known."""
        say(f"starting {len(self.cluster.parts)} processes in {self.folder}")
        began_at = clock()
        self.cluster.start()
        self.leaders.open()
        self.users.begin(self.plan.seed, USERS)
        if self.flow is not None:
            self.flow.begin()
        if self.plan.with_slow:
            self._slow = self._clients()
            self._slow.start()
        say(f"all nodes online after {clock() - began_at:.1f} s; the storm begins")
        if script is None:
            self.storm.blow(self.plan.seconds, self._tell)
        else:
            script(self)
        self.users.end()
        if self._slow is not None:
            self._slow.kill()
        with self.cluster.client() as client:
            healed_s = self._heal(client)
            return self._gather(client, healed_s)

    def close(self) -> None:
        if self._slow is not None:
            self._slow.kill()
        self.users.close()
        if self.flow is not None:
            self.flow.close()
        self.leaders.close()
        self.cluster.stop()
        self.cluster.network.close()

    def _clients(self) -> Part:
        """Clients that are slow on purpose, with a user's token, and their own address where there are addresses."""
        folder, cluster = self.folder / SLOW, self.cluster
        words = [
            sys.executable,
            "-I",
            "-S",
            slow.__file__,
            str(folder / "counts.json"),
            cluster.token_of("slow"),
        ]
        words += [str(cluster.ca_file or ""), *cluster.addresses.values()]
        return Part(SLOW, folder, cluster.network, words, dict(os.environ))

    def _slow_counts(self) -> dict[str, int]:
        counts = self.folder / SLOW / "counts.json"
        return dict(json.loads(counts.read_bytes())) if counts.exists() else {"any": 0}

    def _tell(self) -> None:
        if clock() - self._told_at < TELL_EVERY_S:
            return
        self._told_at = clock()
        asked = self.users.asked
        done = sum(each.ended for each in asked)
        lives = read_lives(self.folder / LIVES)
        clashes = sum(len(life.clashes) for life in lives.values())
        say(
            f"{len(self.storm.faults):>4} faults  epoch {self.leaders.epoch:>3}  "
            f"leader {self.leaders.leader() or '-':<3}"
            f"  {done}/{len(asked)} jobs  {len(lives)} attempts  {clashes} clashes",
        )

    def _heal(self, client: phalanx.Client) -> float | None:
        """Seconds from the last fault's end until everything has ended and all parts are back."""
        try:
            wait_until(lambda: self._is_healed(client), self.plan.heal_s, "healed")
        except TimeoutError:
            return None
        return clock() - self.storm.last_ended_at

    def _is_healed(self, client: phalanx.Client) -> bool:
        return (
            self.users.is_settled
            and (self.flow is None or self.flow.is_settled(client))
            and self.cluster.is_whole(client)
            and not self._held(client)
            and not living(str(self.folder / LIVES))
        )

    def _held(self, client: phalanx.Client) -> list[str]:
        """What nodes still hold, though nothing runs."""
        try:
            nodes = client.nodes()
        except PhalanxError as error:
            return [str(error)]
        return [
            f"{node.name}: {node.cores_free} of {CORES} cores free, {node.task_count} attempts held"
            for node in nodes
            if node.cores_free != CORES
            or node.task_count
            or sum(device.task is None for device in node.devices) != DEVICES
        ]

    def _gather(self, client: phalanx.Client, healed_s: float | None) -> Evidence:
        pids = living(str(self.folder / LIVES))
        leaks = self._held(client) + [f"process {pid} of a task is alive" for pid in pids]
        return Evidence(
            self.users.asked,
            answers.ask_all(client, self.users.asked),
            read_lives(self.folder / LIVES),
            self.storm.faults,
            answers.names(client),
            rivals(self.leaders.answers),
            leaks,
            healed_s,
            self.cluster.damages(),
            time.time() - clock(),
            self.cluster.shape.lost_after_s,
            self.users.waits,
            led(self.leaders.answers),
            self.users.trespasses,
            self.users.refusals,
            self._slow_counts() if self.plan.with_slow else {},
            None if self.flow is None else self.flow.gather(client),
        )


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def torment(folder: Path, shape: Shape, network: Network, plan: Plan) -> dict[str, list[str]]:
    """Run the rig and print its table; returns the broken promises by name."""
    rig = Rig(folder, shape, network, plan)
    try:
        evidence = rig.run()
    finally:
        rig.close()
    broken = violations(evidence)
    table = "\n".join(lines(evidence, rig.leaders.answers, rig.storm.fallen, broken))
    (folder / "table.txt").write_text(table + "\n")
    (folder / "evidence.json").write_bytes(msgspec.json.format(msgspec.json.encode(evidence), indent=1))
    (folder / "leaders.json").write_text(json.dumps(reigns(rig.leaders.answers), indent=1) + "\n")
    say(table)
    return {name: found for name, found in broken.items() if found}


def main(words: list[str] | None = None) -> int:
    given = _arguments().parse_args(words)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # and clean up on the way
    reason = "--loopback was given" if given.loopback else namespaces.why_not()
    if not reason and not given.inside:
        again = ["unshare", "--net", sys.executable, "-m", "tests.chaos", *sys.argv[1:], "--inside"]
        os.execvp("unshare", again)
    if not has_compiler():
        say("no clock is set: there is no program gcc")
    if reason:
        say(f"on loopback, through proxies: {reason}")
    network: Network = Proxies() if reason else namespaces.Namespaces()
    shape = Shape(
        given.coordinators, given.members, given.runners, given.lease, given.heartbeat, given.lost_after
    )
    plan = Plan(given.seed, given.minutes * 60, given.gap, given.load, tuple(given.only), stages=given.stages)
    folder = given.folder or Path(tempfile.mkdtemp(prefix=f"phalanx-chaos-{given.seed}-"))
    broken = torment(folder.absolute(), shape, network, plan)
    if broken:
        say(f"BROKEN: {', '.join(broken)} (seed {given.seed}); everything is in {folder}")
        return 1
    say(f"every promise was kept (seed {given.seed})")
    if given.folder is None and not given.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("scripts/chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long faults are made")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--coordinators", type=int, default=3)
    parser.add_argument("--members", type=int, default=3, help="of etcd; 0: the coordinators share SQLite")
    parser.add_argument("--runners", type=int, default=8)
    parser.add_argument("--lease", type=float, default=3.0, help="of the leader, in seconds")
    parser.add_argument("--heartbeat", type=float, default=1.0, help="of the runners, in seconds")
    parser.add_argument("--lost-after", type=float, default=9.0, help="silence that loses a node, in seconds")
    parser.add_argument("--gap", type=float, default=2.4, help="seconds between two faults, on average")
    parser.add_argument(
        "--only", action="append", default=[], choices=KINDS, help="a kind of fault; repeatable"
    )
    parser.add_argument("--load", type=int, default=8, help="open tasks of each of the four users")
    parser.add_argument("--stages", type=int, default=1000, help="of the workflow; 0: there is none")
    parser.add_argument("--folder", type=Path, help="where to keep everything; kept afterwards")
    parser.add_argument("--keep", action="store_true", help="keep the folder even if all went well")
    parser.add_argument("--loopback", action="store_true", help="proxies instead of network namespaces")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return parser
