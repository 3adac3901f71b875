"""A value that the log cannot hold is refused before it changes anything: all else of the same turn goes on."""

from __future__ import annotations

from phalanx.core.cluster.decision import Refused
from phalanx.core.cluster.inputs import Hello
from phalanx.core.model.orders import Status
from phalanx.core.model.resources import Capacity, NumaNode
from tests.support.builders import a_capacity, a_cluster, a_job

TOO_LARGE = Capacity(4, 0, (NumaNode(0, 10**300),))


def test_one_input_that_cannot_be_written_is_refused_and_the_rest_of_its_turn_is_durable() -> None:
    cluster, job = a_cluster(n1={"cores": 4}), a_job(cores=1)
    wrong, right = (
        Hello(name, "a", name, has, []) for name, has in (("n2", TOO_LARGE), ("n3", a_capacity()))
    )
    refused, accepted = cluster.give(wrong, right)
    assert isinstance(refused, Refused) and refused.reason.code == "CannotBeWritten"
    assert not isinstance(accepted, Refused)
    assert cluster.turns[-1].batch() is not None
    assert cluster.turns[-1].unwritable[0].startswith("Hello: ")
    assert cluster.state.nodes.keys() == {"n1", "n3"}
    cluster.submit(job)
    assert cluster.status(job) == Status.ASSIGNED
