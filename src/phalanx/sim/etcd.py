"""An etcd cluster as its clients see it: a model of its keys, behind a network and members that fail.

A request travels, takes effect at one instant, and its answer travels back. It may be slow; its answer may be lost
after it took effect; it may take effect after its client gave up; without a leader nothing is answered, and no lease
ends. Nothing ever takes effect twice. `on_change` is called after every change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import structs

from phalanx.sim.eventloop import outside
from phalanx.sim.keyspace import Keyspace
from phalanx.sim.life import Life
from phalanx.sim.world import World
from phalanx.store.etcd.kv import (
    Compare,
    Delete,
    EtcdUnavailable,
    Get,
    KeyValue,
    Kv,
    Outcome,
    Put,
    RangeReply,
)
from phalanx.store.protocol import StoreError

GIVE_UP_S = 2.0  # how long a client waits for an answer
LATE_MAX_S = 12.0
EXPIRY_EVERY_S = 0.5  # how often etcd looks for expired leases


class Etcd:
    """The cluster and its faults."""

    def __init__(self, world: World, on_change: Callable[[], None]) -> None:
        self.world = world
        self.dice = world.dice("etcd")
        self.held = Keyspace(lambda: world.now, lambda: 1 + self.dice.getrandbits(62))
        self.has_leader = True
        self.is_slow = False
        self.loses_answers = False
        self.delays_requests = False  # some requests take effect long after their client gave up
        self.has_dead_member = False
        self.cut_off: set[str] = set()  # seats whose requests arrive nowhere
        self.is_damaged: Callable[[bytes], bool] = _never  # whether clients read a damaged value under a key
        self._on_change = on_change
        self._proposed: list[
            Callable[[], None]
        ] = []  # what a lost leader had accepted, and the next one may carry out
        world.after(EXPIRY_EVERY_S, self._expire)

    def client(self, owner: Life, seat: str) -> Kv:
        return SimulatedEtcdClient(self, owner, seat)

    def direct(self) -> Kv:
        """A client without network and faults, for checkers."""
        return Direct(self.held)

    def lose_leader(self) -> None:
        self.has_leader = False

    def find_leader(self) -> None:
        """Etcd has a leader again, which restarts every lease with its full time."""
        if self.has_leader:
            return
        self.has_leader = True
        self.held.extend_leases()
        proposed, self._proposed = self._proposed, []
        for effect in proposed:
            effect()

    def carry_out(self, effect: Callable[[], Any], answer: Callable[[Any], None], has_answer: bool) -> None:
        """A request has arrived."""
        if not self.has_leader:
            if self.dice.random() < 0.2:
                self._proposed.append(lambda: self._apply(effect, answer, False))
            elif self.dice.random() < 0.5:
                answer(EtcdUnavailable("etcdserver: no leader"))
            return
        self._apply(effect, answer, has_answer)

    def _apply(self, effect: Callable[[], Any], answer: Callable[[Any], None], has_answer: bool) -> None:
        before = self.held.revision
        try:
            outcome = effect()
        except StoreError as error:
            outcome = error
        if self.held.revision != before:
            self._on_change()
        if has_answer:
            self.world.after(self.travel_s(), answer, outcome)

    def travel_s(self) -> float:
        if self.is_slow and self.dice.random() < 0.4:
            return self.dice.uniform(0.05, 1.5)
        return self.dice.uniform(0.0002, 0.002)

    def _expire(self) -> None:
        if self.has_leader:
            for id in self.held.expired():
                self.held.revoke(id)
                self._on_change()
        self.world.after(EXPIRY_EVERY_S, self._expire)


class SimulatedEtcdClient:
    """One coordinator's connection to the cluster."""

    def __init__(self, etcd: Etcd, owner: Life, seat: str) -> None:
        self._etcd = etcd
        self._owner = owner
        self._seat = seat

    async def range(
        self,
        key: bytes,
        end: bytes = b"",
        *,
        limit: int = 0,
        newest_first: bool = False,
        keys_only: bool = False,
    ) -> RangeReply:
        held = self._etcd.held
        found: RangeReply = await self._ask(lambda: held.range(key, end, limit, newest_first, keys_only))
        return structs.replace(found, entries=self._as_read(found.entries))

    async def txn(
        self, compares: list[Compare], then: list[Put | Delete | Get], otherwise: list[Get] | None = None
    ) -> Outcome:
        outcome: Outcome = await self._ask(lambda: self._etcd.held.txn(compares, then, otherwise))
        return structs.replace(outcome, found=[self._as_read(each) for each in outcome.found])

    def _as_read(self, entries: list[KeyValue]) -> list[KeyValue]:
        """The entries as a client reads them: one bit of each damaged value is flipped."""
        is_damaged = self._etcd.is_damaged
        return [
            structs.replace(each, value=each.value[:-1] + bytes((each.value[-1] ^ 1,)))
            if each.value and is_damaged(each.key)
            else each
            for each in entries
        ]

    async def grant(self, ttl_s: int) -> int:
        id: int = await self._ask(lambda: self._etcd.held.grant(ttl_s))
        return id

    async def keep_alive(self, lease: int) -> int:
        left_s: int = await self._ask(lambda: self._etcd.held.keep_alive(lease))
        return left_s

    async def revoke(self, lease: int) -> None:
        await self._ask(lambda: self._etcd.held.revoke(lease))

    async def close(self) -> None:
        """Nothing to do."""

    async def _ask(self, effect: Callable[[], Any]) -> Any:
        """Send a request and wait for its answer, or give up; then it is unknown whether it took effect."""
        etcd, dice = self._etcd, self._etcd.dice
        future, resolve = outside(self._owner)
        is_lost = self._seat in etcd.cut_off or (etcd.has_dead_member and dice.random() < 1 / 3)
        has_answer = not (etcd.loses_answers and dice.random() < 0.4)
        arrives_s = etcd.travel_s()
        if etcd.delays_requests and dice.random() < 0.6:
            arrives_s += dice.uniform(0.5, LATE_MAX_S)
        if not is_lost:
            etcd.world.after(arrives_s, etcd.carry_out, effect, resolve, has_answer)
        etcd.world.after(GIVE_UP_S, _give_up, resolve)
        return await future


class Direct:
    """The same client without a network: nothing waits and nothing fails."""

    def __init__(self, held: Keyspace) -> None:
        self._held = held

    async def range(
        self,
        key: bytes,
        end: bytes = b"",
        *,
        limit: int = 0,
        newest_first: bool = False,
        keys_only: bool = False,
    ) -> RangeReply:
        return self._held.range(key, end, limit, newest_first, keys_only)

    async def txn(
        self, compares: list[Compare], then: list[Put | Delete | Get], otherwise: list[Get] | None = None
    ) -> Outcome:
        return self._held.txn(compares, then, otherwise)

    async def grant(self, ttl_s: int) -> int:
        return self._held.grant(ttl_s)

    async def keep_alive(self, lease: int) -> int:
        return self._held.keep_alive(lease)

    async def revoke(self, lease: int) -> None:
        self._held.revoke(lease)

    async def close(self) -> None:
        """Nothing to do."""


def _never(_key: bytes) -> bool:
    return False


def _give_up(resolve: Callable[[Any], None]) -> None:
    resolve(EtcdUnavailable(f"no member answered within {GIVE_UP_S:g} s"))
