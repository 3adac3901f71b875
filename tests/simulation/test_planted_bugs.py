"""Planted bugs: each breaks the real code in one place, and the simulator must see it, with the right checker.

A simulator that finds nothing may be blind. Each bug states how many seeds may pass before it is found, and by which
check. The first five were asked for; the others are mistakes that it found in our own code, put back.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from msgspec import structs

from phalanx.coordinator import link
from phalanx.coordinator.link import Envelope
from phalanx.coordinator.loop import Loop
from phalanx.coordinator.turn import Engine, Turn
from phalanx.core.cluster.apply import grants
from phalanx.core.cluster.apply import jobs as apply_jobs
from phalanx.core.cluster.decide import nodes as decide_nodes
from phalanx.core.cluster.decision import Answer
from phalanx.core.cluster.inputs import Heartbeat, Hello, Input, Submit, Tell
from phalanx.core.cluster.state import ClusterState
from phalanx.core.cluster.transitions import CHOICES
from phalanx.core.model.orders import AttemptKey, Resume
from phalanx.link import wire
from phalanx.runner.turn import RunnerEngine
from phalanx.sim.runner import WatchedEngine
from phalanx.sim.trial import MODES, run
from phalanx.store.etcd.leadership import EtcdLeadership
from phalanx.store.memory import MemoryStore
from phalanx.store.sqlite.store import SqliteStore
from tests.simulation.seeds import must_find, must_find_among

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize(
    ("store", "check", "mode", "begin"),
    # In some seeds before 35 the first sign is that a coordinator does not notice that it was replaced.
    [(MemoryStore, "_check", "memory", 35), (SqliteStore, "_check_epoch", "sqlite", 0)],
)
def test_a_store_that_accepts_an_old_epoch_is_found(
    monkeypatch: Patch, store: type[MemoryStore | SqliteStore], check: str, mode: str, begin: int
):
    """Nor does it compare where the log ends, which is a second guard."""
    monkeypatch.setattr(store, check, lambda self, epoch: None)
    monkeypatch.setattr(store, "append", anywhere(store))
    seeds = (seed for seed in count(begin) if MODES[seed % len(MODES)].store == mode)
    must_find_among(seeds, {"epochs", "heals"}, within=20, faults=["second-leader", "usurper"])


def anywhere(store: type[MemoryStore | SqliteStore]) -> Any:
    """An append that goes after whatever is there."""
    append = store.append

    async def careless(self: Any, *arguments: Any) -> None:
        self._head = None
        await append(self, *arguments)

    return careless


def test_a_forgotten_release_is_found(monkeypatch: Patch):
    end_attempt = grants.end_attempt

    def forgetful(state: ClusterState, job: Any, attempt: Any, at: float) -> None:
        node = state.nodes[attempt.node]
        lanes = len(node.lanes)
        end_attempt(state, job, attempt, at)
        if len(node.lanes) < lanes and attempt.grant.devices:  # only devices, and the cores beside them
            state.table.take(node.row, attempt.grant)

    monkeypatch.setattr(apply_jobs, "end_attempt", forgetful)
    must_find({"ledger"}, within=10)


def test_a_reply_before_the_append_is_found(monkeypatch: Patch):
    """A submission is acknowledged while its batch is still on the way to the store."""
    turning: list[Loop] = []
    loop_turn, engine_turn = Loop._turn, Engine.turn

    async def marked(self: Loop) -> None:
        turning[:] = [self]
        await loop_turn(self)

    def hasty(self: Engine, inputs: list[Input], now: float) -> Turn:
        turn = engine_turn(self, inputs, now)
        turning[0]._in_hand = _answered_early(turning[0]._in_hand, turn)
        return turn

    monkeypatch.setattr(Loop, "_turn", marked)
    monkeypatch.setattr(Engine, "turn", hasty)
    must_find({"accepted"}, within=20)


def _answered_early(envelopes: list[Envelope], turn: Turn) -> list[Envelope]:
    held: list[Envelope] = []
    at = 0
    for inputs, reply in envelopes:
        answers = turn.answers[at : at + len(inputs)]
        at += len(inputs)
        if inputs and isinstance(inputs[0], Submit):
            reply(answers)
            held.append((inputs, _say_nothing))
        else:
            held.append((inputs, reply))
    return held


def _say_nothing(answers: list[Answer | None]) -> None:
    """The answer has been sent already."""


def test_an_ignored_incarnation_is_found(monkeypatch: Patch):
    """In hello, heartbeat and report alike: the last two alone are second guards behind the attempt's number."""
    for kind in (Hello, Heartbeat, Tell):
        monkeypatch.setitem(CHOICES, kind, _of_any_life(CHOICES[kind]))
    must_find({"one-run"}, within=60, begin=12, faults=["reboot", "dying-node", "runner-crash"])


def _of_any_life(decide: Callable[..., Any]) -> Callable[..., Any]:
    def decided(state: ClusterState, given: Hello | Heartbeat | Tell, now: float) -> Any:
        node = state.nodes.get(given.node)
        if node is not None and not node.lost:
            given = structs.replace(given, incarnation=node.incarnation)
        return decide(state, given, now)

    return decided


def test_a_repeated_end_that_is_applied_again_is_found(monkeypatch: Patch):
    """The attempt's number is not compared, so a report that comes twice ends the next attempt as well."""

    def attempt(self: ClusterState, key: AttemptKey) -> Any:
        job = self.jobs.get(key[0])
        return job.live.get(key[1]) if job else None

    monkeypatch.setattr(ClusterState, "attempt", attempt)
    must_find({"one-commit", "one-run", "gang-whole"}, within=40)


# Mistakes that the simulator found in our own code.


def test_a_replaced_coordinator_that_keeps_leases_alive_is_found(monkeypatch: Patch):
    """It writes nothing, so nothing fences it, and its renewals are accepted: its runners never come to the new one."""

    async def believed(self: object, epoch: int, lease_s: float = 0.0) -> None:
        return None

    for leadership in (MemoryStore, SqliteStore, EtcdLeadership):
        monkeypatch.setattr(leadership, "confirm", believed)
        monkeypatch.setattr(leadership, "renew", believed)
    must_find({"heals", "one-run", "leader"}, within=40, faults=["second-leader", "usurper"])


def test_an_end_forgotten_because_its_start_was_answered_is_found(monkeypatch: Patch):
    monkeypatch.setattr(link, "Started", type("Nothing", (), {}))
    must_find(
        {"one-commit"}, within=200, begin=15, faults=["slow-disk", "storm", "crash", "crash-before-append"]
    )


def test_a_request_asked_twice_that_makes_two_jobs_is_found(monkeypatch: Patch):
    monkeypatch.setattr(Engine, "_known", lambda self, given, leaders: None)
    must_find({"accepted"}, within=10)


def test_a_runner_that_clings_to_a_dead_connection_is_found(monkeypatch: Patch):
    monkeypatch.setattr(RunnerEngine, "is_deserted", lambda self, now: False)
    must_find({"heals"}, within=10, faults=["blackout"])


def test_a_lost_resume_that_leaves_a_task_frozen_is_found(monkeypatch: Patch):
    """Runners lose the first order to resume each task, as if the connection broke there, and are told again."""
    receive, lost = WatchedEngine.receive, set[AttemptKey]()

    def forgetful(self: WatchedEngine, message: wire.Message, now: float) -> Any:
        if isinstance(message, wire.Orders):
            fresh = {order.key for order in message.orders if isinstance(order, Resume)} - lost
            lost.update(fresh)
            kept = [each for each in message.orders if not (isinstance(each, Resume) and each.key in fresh)]
            message = structs.replace(message, orders=kept)
        return receive(self, message, now)

    monkeypatch.setattr(WatchedEngine, "receive", forgetful)
    assert [run(seed, []).is_good for seed in range(3)] == [True] * 3, "they are told again"
    assert lost
    lost.clear()
    monkeypatch.setattr(decide_nodes, "_tell_pauses", lambda node, held: [])
    must_find({"heals"}, within=20, faults=[])
