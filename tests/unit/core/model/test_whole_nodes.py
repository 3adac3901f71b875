"""Nodes that run one task at a time (`runner.slots = 1`): it is given the whole machine, whatever it asked for."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec import structs

from phalanx.core.model.ledger import Ledger
from phalanx.core.model.resources import Capacity, Grant, Request
from phalanx.core.model.table import NodeTable
from tests.support.builders import GIB, a_capacity, a_cluster, a_gang, a_group, a_job
from tests.support.dispatch_cluster import DispatchCluster, a_machine, a_task

WHOLE = structs.replace(a_capacity(cores=8, gpus=4, numa=2), slots=1)


def test_one_task_is_given_all_cores_and_memory_and_the_devices_that_it_asked_for() -> None:
    ledger = Ledger("n1", WHOLE)
    grant = ledger.fit(Request(cores=1, gpus=2))
    assert isinstance(grant, Grant)
    assert (grant.cores, grant.memory_bytes, len(grant.devices)) == (8, 16 * GIB, 2)
    assert sum(cores for _, cores in grant.numa_cores) == 8
    assert ledger.slots(Request(cores=1)) == 1
    ledger.take(grant)
    for asked in (Request(cores=1), Request(cores=0), Request(cores=0, gpus=1)):
        assert not isinstance(ledger.fit(asked), Grant)
        assert ledger.slots(asked) == 0
    assert ledger.never(Request(cores=8)) is None
    assert ledger.never(Request(cores=9)) is not None
    ledger.give_back(grant)
    assert ledger.is_empty


def test_the_columns_say_what_the_ledgers_say() -> None:
    table = NodeTable()
    for number in range(70):
        capacity = WHOLE if number % 3 == 0 else a_capacity(cores=8, gpus=4)
        table.put(f"n{number}", capacity)
        table.set_open(f"n{number}", True)
    for number in (0, 1, 3):
        grant = table.ledgers[number].fit(Request(cores=1))
        assert isinstance(grant, Grant)
        table.take(number, grant)
    table.remove("n6")
    for asked in (Request(cores=2), Request(cores=0), Request(cores=1, gpus=3)):
        exact = [ledger.slots(asked) for ledger in table.ledgers]
        assert table.columns.slots(asked).tolist() == exact
        assert table.slots(asked).column.tolist() == exact
        assert int(np.max(table.columns.slots(asked, every=True)[table.columns.whole])) == 1


def test_tasks_take_turns_there_and_gangs_have_one_member_on_it() -> None:
    cluster = a_cluster(n1={"cores": 8})
    cluster.add_node("n2", cores=8)
    cluster.state.table.put("n1", WHOLE)
    cluster.state.nodes["n1"].capacity = WHOLE
    cluster.state.table.set_open("n1", True)
    gang = a_gang(a_group(tasks=3, cores=4))
    cluster.submit(gang)
    where = sorted(attempt.node for attempt in cluster.state.jobs[gang.id].live.values())
    assert where == ["n1", "n2", "n2"]
    later = a_job("n1")
    cluster.submit(later)
    assert not cluster.state.jobs[later.id].live


def test_a_stage_has_the_node_to_itself() -> None:
    cluster = DispatchCluster(None, {"w1": structs.replace(a_machine(16), slots=1)})
    first, second = (cluster.stage(cluster.run(a_task("sft"))) for _ in range(2))
    assert (cluster.where(first), cluster.where(second)) == ("w1", "")
    cluster.finish(first)
    assert cluster.where(second) == "w1"


def test_other_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="slots: 2 is out of range, expected 0 or 1"):
        Capacity(1, 1, slots=2)
