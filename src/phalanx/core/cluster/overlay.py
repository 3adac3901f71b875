"""Addresses of the overlay network as the cluster knows them: blocks of nodes, reservations, addresses that rest.

A reservation sets one address of a node aside for its user until it expires. A task that is submitted with its token
is bound to it: from then on it belongs to the task's attempts, and it ends when the last of them has ended. Only a
digest of the token is kept. What is free of a block is counted in the ledger of its node (`core/model/overlay.py`),
which is told of all this whenever it is made anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from msgspec import Struct, structs

from phalanx.core.model.job import JobId, NodeName

RESERVATIONS_MAX = 10_000
USER_RESERVATIONS_MAX = 256


class ReservedAddress(Struct, frozen=True, omit_defaults=True):
    """One address of one node, set aside for a user. `id` is the beginning of the digest of its token."""

    id: str
    digest: bytes
    node: NodeName
    address: str
    user: str
    created_at: float
    expires_at: float  # once it is bound to a job it does not expire any more
    job: JobId = ""  # the job whose task has it

    def is_open(self, now: float) -> bool:
        """Whether its token can still be used."""
        return not self.job and now < self.expires_at


class OverlayImage(Struct, array_like=True):
    blocks: dict[NodeName, str] = {}
    reservations: list[ReservedAddress] = []
    resting: list[tuple[float, NodeName, str]] = []


class Overlay:
    """Blocks by node, also of nodes that were removed; reservations; and addresses that rest, in a heap by time."""

    def __init__(self, image: OverlayImage | None = None) -> None:
        image = image or OverlayImage()
        self.blocks = image.blocks
        self.by_id: dict[str, ReservedAddress] = {}
        self.by_digest: dict[bytes, ReservedAddress] = {}
        self.by_job: dict[JobId, ReservedAddress] = {}
        self.of_user: dict[str, int] = {}
        self.holders: dict[
            str, tuple[NodeName, str]
        ] = {}  # node and owner of each address that an attempt holds
        self.of_owner: dict[str, set[str]] = {}  # the addresses among them
        self.tenants: dict[NodeName, dict[str, int]] = {}  # how many lanes each owner has on a node
        self.version = 0  # grows with whatever runners have to know
        self._expiring: list[tuple[float, str]] = []
        self.resting = image.resting
        heapify(self.resting)
        for each in image.reservations:
            self.add(each)

    def image(self) -> OverlayImage:
        return OverlayImage(self.blocks, list(self.by_id.values()), sorted(self.resting))

    def __bool__(self) -> bool:
        return bool(self.blocks or self.by_id or self.resting)

    @property
    def next_due(self) -> float | None:
        """When the next address has rested long enough."""
        return self.resting[0][0] if self.resting else None

    def add(self, made: ReservedAddress) -> None:
        self.by_id[made.id] = self.by_digest[made.digest] = made
        self.of_user[made.user] = self.of_user.get(made.user, 0) + 1
        if made.job:
            self.by_job[made.job] = made
        else:
            heappush(self._expiring, (made.expires_at, made.id))

    def bind(self, made: ReservedAddress, job: JobId) -> None:
        """A task of this job has shown the token: nobody else can from now on."""
        bound = structs.replace(made, job=job)
        self.by_id[made.id] = self.by_digest[made.digest] = self.by_job[job] = bound

    def end(self, id: str) -> ReservedAddress | None:
        made = self.by_id.pop(id, None)
        if made is not None:
            del self.by_digest[made.digest]
            self.by_job.pop(made.job, None)
            self.of_user[made.user] -= 1
            if not self.of_user[made.user]:
                del self.of_user[made.user]
        return made

    def expired(self, now: float) -> list[ReservedAddress]:
        """Those whose time is over and that nobody has used; the answer is the same until they have ended."""
        found: list[ReservedAddress] = []
        while self._expiring and self._expiring[0][0] <= now:
            made = self.by_id.get(self._expiring[0][1])
            if made is None or made.job:
                heappop(self._expiring)
                continue
            found = [each for each in self.by_id.values() if not each.job and each.expires_at <= now]
            break
        return found

    def hold(self, address: str, node: NodeName, owner: str) -> None:
        self.holders[address] = node, owner
        self.of_owner.setdefault(owner, set()).add(address)
        self.version += 1

    def leave(self, address: str) -> None:
        _, owner = self.holders.pop(address, ("", ""))
        if (left := self.of_owner.get(owner)) is not None:
            left.discard(address)
            if not left:
                del self.of_owner[owner]
        self.version += 1

    def came(self, node: NodeName, owner: str) -> None:
        """A lane of this owner was opened on the node: with the first, it has to know the owner's addresses."""
        here = self.tenants.setdefault(node, {})
        here[owner] = here.get(owner, 0) + 1
        self.version += here[owner] == 1 and owner in self.of_owner

    def went(self, node: NodeName, owner: str) -> None:
        here = self.tenants.get(node, {})
        if owner in here:
            here[owner] -= 1
            if not here[owner]:
                del here[owner]
                self.version += owner in self.of_owner
        if not here:
            self.tenants.pop(node, None)

    def known_at(self, node: NodeName) -> list[tuple[str, str]]:
        """The addresses of all owners who have tasks on the node, wherever they are, with their owners."""
        here = self.tenants.get(node, {})
        return sorted((address, owner) for owner in here for address in self.of_owner.get(owner, ()))

    def rest(self, node: NodeName, address: str, until: float) -> None:
        heappush(self.resting, (until, node, address))

    def rested(self, now: float) -> Iterator[tuple[NodeName, str]]:
        """Addresses that have rested long enough; each is told once."""
        while self.resting and self.resting[0][0] <= now:
            _, node, address = heappop(self.resting)
            yield node, address

    def wake(self, node: NodeName, address: str) -> None:
        """End the rest of this address before its time."""
        self.resting[:] = [each for each in self.resting if each[1:] != (node, address)]
        heapify(self.resting)

    def at(self, node: NodeName, address: str) -> ReservedAddress | None:
        """The reservation of this address, if there is one."""
        found = (each for each in self.by_id.values() if each.node == node and each.address == address)
        return next(found, None)
