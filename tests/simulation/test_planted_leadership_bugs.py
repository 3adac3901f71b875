"""Planted bugs about the right to write and to send: epochs, fences, leases, promotions, renewals.

Each breaks the real store or the real coordinator in one place, on a modelled etcd with three candidates. Where a
second guard would hide the bug, that guard is removed as well, and the test says so.
"""

from __future__ import annotations

from math import inf
from typing import Any

import msgspec
import pytest

from phalanx.coordinator import leadership, loop, replica
from phalanx.coordinator import restore as coordinator_restore
from phalanx.coordinator.leadership import Leadership
from phalanx.coordinator.loop import Loop
from phalanx.coordinator.term import Term
from phalanx.coordinator.turn import Engine, Turn
from phalanx.core.cluster.state import ClusterState
from phalanx.sim.trial import etcd_seeds
from phalanx.store.etcd.fence import Fence
from phalanx.store.etcd.kv import Compare, Put
from phalanx.store.etcd.leadership import EtcdLeadership
from phalanx.store.etcd.records import LeaderRecord, number
from phalanx.store.etcd.store import EtcdStore
from phalanx.store.protocol import Leader
from tests.simulation.seeds import must_find_among

Patch = pytest.MonkeyPatch
pytestmark = pytest.mark.timeout(300)
TAKEOVERS = ["usurper", "stall", "cut-off", "lonely-leader", "retirement", "crash"]


def must_find(checkers: set[str], within: int, faults: list[str] | None = None, *, begin: int = 0) -> None:
    """On the modelled etcd; `begin` as in `seeds.must_find`."""
    seeds = (seed for seed in etcd_seeds() if seed >= begin)
    must_find_among(seeds, checkers, within, faults)


# The store.


def test_an_append_that_does_not_compare_the_epoch_is_found(monkeypatch: Patch):
    """It does not compare where the log ends either, which is a second guard."""
    monkeypatch.setattr(Fence, "__init__", _fence(epoch=False, head=False))
    must_find({"epochs", "leader"}, within=40, faults=TAKEOVERS)


def test_an_append_that_does_not_compare_the_end_of_the_log_is_found(monkeypatch: Patch):
    """A write whose answer was lost takes effect late, behind one that came after it."""
    monkeypatch.setattr(Fence, "__init__", _fence(epoch=True, head=False))
    must_find(
        {"replay", "epochs", "accepted", "one-commit", "one-run", "durable", "leader"},
        within=120,
        faults=["late-writes"] * 3 + ["lost-commit"],
    )


def _fence(epoch: bool, head: bool) -> Any:
    init = Fence.__init__

    def careless(self: Fence, kv: Any, keys: Any, number: int, end: bytes | None = None) -> None:
        init(self, kv, keys, number, end)
        wanted = {keys.epoch: epoch, keys.head: head}
        self._compares = [each for each in self._compares if wanted[each.key]]

    return careless


def test_a_lease_that_is_used_as_a_lock_is_found(monkeypatch: Patch):
    """The leader writes, whatever the clock says; no write is fenced."""
    monkeypatch.setattr(Fence, "__init__", _fence(epoch=False, head=False))
    monkeypatch.setattr(Term, "holds", lambda self, now: True)
    monkeypatch.setattr(EtcdLeadership, "confirm", _believed)
    must_find({"epochs", "replay", "leader"}, within=20, faults=TAKEOVERS)


async def _believed(self: object, epoch: int) -> None:
    return None


def test_an_epoch_that_goes_away_with_the_office_is_found(monkeypatch: Patch):
    """It is attached to the same lease, so it restarts when there was no leader for a while."""
    monkeypatch.setattr(EtcdLeadership, "_take", _take(lambda epoch, lease: epoch + 1, bound=True))
    must_find({"epochs"}, within=20, faults=TAKEOVERS)


def test_a_fence_that_comes_from_the_lease_grant_is_found(monkeypatch: Patch):
    """Each member of etcd numbers its leases for itself, so the number of a lease does not show which came later."""
    monkeypatch.setattr(EtcdLeadership, "_take", _take(lambda epoch, lease: lease, bound=False))
    must_find({"epochs"}, within=10, faults=TAKEOVERS)


def _take(minted: Any, bound: bool) -> Any:
    """Take the leadership with an epoch that the transaction does not compare."""

    async def take(
        self: EtcdLeadership, candidate: Any, lease: int, holder: Any, epoch: bytes
    ) -> Leader | None:
        keys = self._keys
        ours = LeaderRecord(minted(number(epoch), lease), candidate.name, candidate.address, candidate.link)
        compares = [Compare(keys.leader, "mod", holder.mod_revision if holder else 0)]
        puts = [
            Put(keys.leader, msgspec.json.encode(ours), lease),
            Put(keys.epoch, b"%d" % ours.epoch, lease if bound else 0),
        ]
        outcome = await self._kv.txn(compares, [*puts])
        return ours.leader if outcome.succeeded else None

    return take


# Taking over.


def test_a_promotion_that_does_not_read_the_rest_of_the_log_is_found(monkeypatch: Patch):
    """It knows where the log ends, so its writes are accepted, but not what is in it."""

    async def hasty(self: Leadership, term: Term) -> None:
        if self._replica.engine is None:
            await self._read()
        loaded = await self._store.load()
        assert self._replica.engine is not None
        state = self._replica.engine.state
        state.revision = max([state.revision, *(batch.revision for batch in loaded.batches)])
        await self._open_term(term)

    monkeypatch.setattr(Leadership, "_promote", hasty)
    wrong = {
        "replay",
        "accepted",
        "one-commit",
        "one-run",
        "mistake",
        "assertion",
        "heals",
        "preemption",
        "lanes",
    }
    must_find(wrong, within=40, begin=66)


def test_a_standby_that_leads_under_the_epoch_of_another_is_found(monkeypatch: Patch):
    """It takes any elected leader for itself."""
    elect = EtcdStore.elect

    async def vain(self: EtcdStore, candidate: Any, lease_s: float) -> Leader:
        leader = await elect(self, candidate, lease_s)
        return Leader(leader.epoch, candidate)

    async def nobody(self: EtcdStore) -> None:
        return None

    monkeypatch.setattr(EtcdStore, "elect", vain)
    monkeypatch.setattr(EtcdStore, "leader", nobody)
    must_find({"epochs"}, within=10)


def test_a_generation_that_is_kept_in_memory_only_is_found(monkeypatch: Patch):
    restore = coordinator_restore.restore

    def forgetful(*arguments: Any) -> ClusterState:
        state = restore(*arguments)
        for node in state.nodes.values():
            node.generation = 0
        return state

    for module in (coordinator_restore, replica):
        monkeypatch.setattr(module, "restore", forgetful)
    must_find({"generations", "replay"}, within=20)


# Sending.


def test_orders_that_go_out_before_they_are_durable_are_found(monkeypatch: Patch):
    turns: list[Loop] = []
    turn, beat = Loop._turn, Engine.turn

    async def marked(self: Loop) -> None:
        turns[:] = [self]
        await turn(self)

    def hasty(self: Engine, inputs: Any, now: float) -> Turn:
        done = beat(self, inputs, now)
        turns[0]._hearers.links.dispatch(done.effects)  # type: ignore[attr-defined]
        return done

    monkeypatch.setattr(Loop, "_turn", marked)
    monkeypatch.setattr(Engine, "turn", hasty)
    must_find({"durable"}, within=10)


def test_a_renewal_that_counts_from_its_answer_is_found(monkeypatch: Patch):
    """Without the second guard, which asks the store every few seconds whether another was elected."""
    monkeypatch.setattr(loop, "confirm_every_s", lambda rules: inf)
    monkeypatch.setattr(leadership, "Term", _OptimisticTerm)
    must_find({"leader"}, within=300, begin=81, faults=["slow-disk", "stall", "stall", "lonely-leader"])


class _OptimisticTerm(Term):
    """It takes the time of the next look at the clock for the time of the renewal."""

    def renewed(self, sent_at: float) -> None:
        super().renewed(sent_at)
        self._is_fresh = True

    def holds(self, now: float) -> bool:
        if getattr(self, "_is_fresh", False):
            self._is_fresh, self.sent_at = False, now
        return super().holds(now)
