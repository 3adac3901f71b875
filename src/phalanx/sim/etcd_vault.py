"""The state of one run in a model of etcd: the real etcd store for each coordinator, and one for the checkers.

A write counts as durable when it takes effect in the model, not when it is acknowledged: a write whose answer was lost
counts, and so does one that takes effect after its client gave up.
"""

from __future__ import annotations

from phalanx.sim.disk import drive
from phalanx.sim.etcd import Etcd
from phalanx.sim.life import Life
from phalanx.sim.vault import StoreWatcher
from phalanx.sim.violation import Violation
from phalanx.sim.world import World
from phalanx.store.etcd.keys import EtcdKeys
from phalanx.store.etcd.store import EtcdStore
from phalanx.store.protocol import Batch, Regressed, Store

PREFIX = "phalanx"
_KEYS = EtcdKeys(PREFIX)
BATCHES_MAX = 1000


class EtcdVault:
    """One etcd for all coordinators of a run."""

    def __init__(self, world: World, watcher: StoreWatcher) -> None:
        self.etcd = Etcd(world, self._changed)
        self.outside: Store = EtcdStore(self.etcd.direct(), PREFIX)
        self.damaged: set[int] = set()
        self.etcd.is_damaged = self._is_damaged
        self._watcher = watcher
        self._follower = EtcdStore(self.etcd.direct(), PREFIX)  # follows what is written
        self._epoch = 0
        self._revision = 0
        self._intended: dict[
            tuple[int, bytes], list[int]
        ] = {}  # the epochs under which coordinators meant to write a batch

    def open(self, owner: Life, seat: str) -> Store:
        return EtcdStore(self.etcd.client(owner, seat), PREFIX)

    def intends(self, epoch: int, batch: Batch) -> None:
        self._intended.setdefault((batch.revision, batch.body), []).append(epoch)

    def close(self) -> None:
        """Nothing to close."""

    # What faults can do to it.

    @property
    def is_slow(self) -> bool:
        return self.etcd.is_slow

    @is_slow.setter
    def is_slow(self, value: bool) -> None:
        self.etcd.is_slow = value

    @property
    def is_full(self) -> bool:
        return self.etcd.held.is_full

    @is_full.setter
    def is_full(self, value: bool) -> None:
        self.etcd.held.is_full = value

    @property
    def is_away(self) -> bool:
        return not self.etcd.has_leader

    @is_away.setter
    def is_away(self, value: bool) -> None:
        if value:
            self.etcd.lose_leader()
        else:
            self.etcd.find_leader()

    @property
    def forgets_to_answer(self) -> bool:
        return self.etcd.loses_answers

    @forgets_to_answer.setter
    def forgets_to_answer(self, value: bool) -> None:
        self.etcd.loses_answers = value

    def _is_damaged(self, key: bytes) -> bool:
        return any(key == _KEYS.log(revision) for revision in self.damaged)

    # What changes.

    def _changed(self) -> None:
        """A key was written: perhaps an epoch, perhaps a batch."""
        leader = drive(self._follower.leader())
        if leader is not None and leader.epoch != self._epoch:
            self._epoch = leader.epoch
            self._watcher.term_opened(leader.epoch, leader.candidate.name)
        try:
            batches = drive(self._follower.since(self._revision, BATCHES_MAX))
        except Regressed as error:  # the model never loses anything, so a batch was overwritten
            raise Violation("epochs", str(error)) from error
        for batch in batches:
            self._revision = batch.revision
            epochs = self._intended.get((batch.revision, batch.body), [0])
            self._watcher.committed(self._epoch if self._epoch in epochs else epochs[-1], batch)
