"""Everything that a plan or a decision could leave behind in the state, as bytes to compare before and after."""

from __future__ import annotations

from msgspec import msgpack, structs

from phalanx.core.cluster.image import encode_state
from phalanx.core.cluster.names import JobNames
from phalanx.core.cluster.state import ClusterState
from phalanx.core.model.overlay import AddressBlock
from phalanx.core.model.plan import PlanMemory, Snapshot


def snapshot_image(seen: Snapshot) -> bytes:
    """Columns, ledgers, tenants, quotas and usage, the queue in its order, and what plans remember."""
    table, tenants = seen.nodes, seen.tenants
    return msgpack.encode(
        (
            (seen.gain, seen.now),
            (table.names, [column.tolist() for column in table.columns.free], table.open.tolist()),
            [_ledger_facts(ledger) for ledger in table.ledgers],
            [(key, structs.astuple(held)) for key in tenants.slots if (held := tenants.get(key)) is not None],
            sorted(tenants.needed.items()),
            seen.queues.quotas,
            # a queue that has nothing left is the same as one that never had
            sorted((name, *held) for name, held in seen.queues.usage.items() if any(held)),
            [
                (repr(kind), found.number, found.last_entry, found.ranks)
                for kind, found in seen.waiting.classes.items()
            ],
            [seen.waiting.entry(rank) for found in seen.waiting.classes.values() for rank in found.ranks],
            memory_image(seen.memory),
        )
    )


def memory_image(memory: PlanMemory) -> bytes:
    notes = [(number, structs.astuple(note)) for number, note in memory.notes.items()]
    kept = [(rank, structs.astuple(each)) for rank, each in memory.kept.items()]
    return msgpack.encode((notes, kept, memory.failed, memory.refusals))


def state_image(state: ClusterState) -> bytes:
    """What the store would keep, and all that follows from it: indexes, columns, heaps and the leases' clock."""
    seen = Snapshot(state.table, state.waiting, state.gain, state.tenants, state.queues, 0.0)
    nodes = [
        (node.name, node.row, node.connected, node.heard_at, node.is_kept_away, node.counted)
        for node in state.nodes.values()
    ]
    return msgpack.encode(
        (
            encode_state(state),
            snapshot_image(seen),
            nodes,
            (state.job_ids, _names_image(state.names), state.tasks_of, list(state.excluded)),
            (state.could_work, state.could_but_excluded, state.nobody_else),
            (list(state.forming), sorted(state.incomplete), list(state.promised)),
            (state.retries, list(state.jobs), state.counts, state.skipped),
        )
    )


def _names_image(names: JobNames) -> object:
    """Users and names in one order: an image has them in that of the jobs that are left."""
    indexes = [
        sorted(
            (first, sorted((second, list(ids)) for second, ids in inner.items()))
            for first, inner in each.items()
        )
        for each in (names.jobs, names.objects)
    ]
    return sorted(names.numbers.items()), indexes


def _ledger_facts(ledger: object) -> list[object]:
    facts = (getattr(ledger, name) for name in type(ledger).__slots__)  # type: ignore[attr-defined]
    return [_plain(fact) for fact in facts]


def _plain(fact: object) -> object:
    if isinstance(fact, AddressBlock):
        return _ledger_facts(fact)
    return sorted(fact) if isinstance(fact, set) else fact
