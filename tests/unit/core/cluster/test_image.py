"""An image that an earlier version wrote is still read, and written again as it was, with new fields behind the old.

`image_61efdf2.msgpack` is a state of the simulator as commit 61efdf2 encoded it: a gang at the barrier, a promise that
waits for its victim, preempted and evicted tasks, a node that is drained and stopping, an excluded one, one in trouble
and one that is lost, a credential, a quota and the brake.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import msgpack

from phalanx.core.cluster.brake import Brake
from phalanx.core.cluster.image import decode_job, decode_state, encode_job, encode_state
from phalanx.core.cluster.invariants import check
from phalanx.core.cluster.node_image import NodeImage
from phalanx.core.cluster.state import ClusterState, Timers
from phalanx.core.model.orders import Why
from phalanx.core.model.queues import Quota
from phalanx.core.model.resources import Grant

BODY = Path(__file__).with_name("image_61efdf2.msgpack").read_bytes()
FORMING, PROMISED = "0000xsnkczf09m1qc8z3t6xzmd", "0000xsrgg34hdb1yvdnm7m4pjv"
EVICTED, VICTIM = "0000xsq6ppbng8y9mqyya72rz5", ("0000xsnstgxdwccb69e1hp5wxf", 1, 4)
GIB = 1024**3


def the_state() -> ClusterState:
    return decode_state(BODY, Timers())


def begins_with(new: Any, old: Any) -> bool:
    """Whether records say what they said; what later versions have added stands behind it, and is empty."""
    if isinstance(old, list) and isinstance(new, list):
        added = new[len(old) :]
        return len(new) >= len(old) and not any(added) and all(map(begins_with, new, old))
    return bool(new == old)


def test_it_is_written_again_as_it_was():
    again, old = encode_state(the_state()), msgpack.decode(BODY)
    for node in old[3]:
        node[NodeImage.__struct_fields__.index("failed_jobs")] = []  # not kept any more
    assert begins_with(msgpack.decode(again), old)
    assert encode_state(decode_state(again, Timers())) == again
    assert check(the_state()) == []


def test_its_jobs_are_known():
    state = the_state()
    forming, promise = state.jobs[FORMING].forming, state.jobs[PROMISED].promise
    assert forming is not None
    assert (forming.number, forming.positions, forming.ready) == (4, {0, 1, 3}, {0})
    assert promise is not None
    assert (promise.victims, promise.trigger, list(promise.members)) == ({VICTIM}, 0, [1, 0])
    assert promise.members[1] == ("n4", Grant(1, GIB, (2,), None, ((1, 1),)))
    assert state.live(VICTIM).ending == Why.EVICTED
    condition = state.jobs[EVICTED].conditions[1]
    assert (condition.message, condition.preempted) == ("phalanx: evicted by user", False)
    assert condition.past_at == 1000077.144935888
    preempted = state.jobs[FORMING].conditions[2]
    assert (preempted.preempted, preempted.past_at) == (True, None)


def test_its_nodes_are_known():
    state = the_state()
    n1, n2, n3, n4 = (state.nodes[name] for name in ("n1", "n2", "n3", "n4"))
    assert (n1.drain_reason, n1.leaving, n1.kept_s) == ("new cooling", True, 30.0)
    assert (n2.lost, n2.lost_at, n2.generation) == (True, 1000099.0, 5)
    assert (n3.failures, n3.excluded_until, n3.exclusion_text) == (5, 1000159.0, "no space left")
    assert n3.leftovers == {("gone", 0, 2), ("gone", 1, 2)}
    assert (n4.trouble, len(n4.attempts), n4.connected) == ("its keeper does not answer", 2, False)
    assert list(state.excluded) == ["n3"]


def test_what_operators_declared_is_known():
    state = the_state()
    assert (state.revision, len(state.jobs), len(state.requests)) == (367, 19, 19)
    assert (state.keyring.secret, state.keyring.by_id["c1"].name) == ("f00d", "ada")
    assert state.queues.quotas == {"default": Quota(tasks=5)}
    assert state.brake == Brake(1000099.0, 3, 4)


def test_its_jobs_go_to_the_history_as_they_were():
    for job in the_state().jobs.values():
        if not job.live and job.promise is None:  # one that has either stays in memory
            assert encode_job(decode_job(encode_job(job))) == encode_job(job)
