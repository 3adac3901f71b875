"""Amounts: parts of cores as thousandths, slots of one node and of many, and what a quota leaves."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from phalanx.core.model.amounts import FIXED, MILLICORES, SLOTS_MAX, Rows, fixed, headroom, slots, written
from phalanx.core.model.columns import slots_each
from phalanx.core.model.ledger import Ledger
from phalanx.core.model.queues import Queues, Quota
from phalanx.core.model.reason import Reason
from phalanx.core.model.resources import Capacity, Cores, Device, Grant, NumaNode, Request

H100, A100 = Device(0, "h100", 80), Device(1, "a100", 40)


@pytest.mark.parametrize(
    ("cores", "millis"), [(2, 2000), (0.5, 500), (0.001, 1), (1.1, 1100), (0.3, 300), (2.0, 2000)]
)
def test_cores_are_thousandths_inside_and_written_as_given(cores: Cores, millis: int) -> None:
    assert MILLICORES[cores] == millis
    assert written(millis) == cores


def test_the_table_of_thousandths_forgets_and_stays_right() -> None:
    assert all(MILLICORES[millis / 1000] == millis for millis in range(1, 10_001))
    assert len(MILLICORES) < 5000


def test_whole_cores_are_written_without_a_point() -> None:
    assert [repr(written(millis)) for millis in (2000, 500, 0, -1000)] == ["2", "0.5", "0", "-1"]


def test_parts_fill_a_core_exactly() -> None:
    ledger = Ledger("n1", Capacity(1, 0))
    for _ in range(10):
        grant = ledger.fit(Request(cores=0.1))
        assert isinstance(grant, Grant)
        ledger.take(grant)
    assert ledger.cores_free == 0
    assert isinstance(no := ledger.fit(Request(cores=0.001)), Reason)
    assert no.numbers == {"wanted": 0.001, "free": 0, "total": 1}


def test_parts_of_cores_are_taken_from_numa_nodes() -> None:
    ledger = Ledger("n1", Capacity(2, 0, (NumaNode(0, 1), NumaNode(1, 1))))
    for cores, parts in ((0.7, ((0, 0.7),)), (0.7, ((1, 0.7),)), (0.4, ((0, 0.3), (1, 0.1)))):
        grant = ledger.fit(Request(cores=cores))
        assert isinstance(grant, Grant) and grant.numa_cores == parts
        ledger.take(grant)
    assert ledger.numa_free == {0: 0, 1: 200}


def test_slots_are_bounded_by_what_is_scarcest_and_nobody_fits_where_too_much_is_promised() -> None:
    assert slots((4000, 10, 0), Request(0.5, 3), SLOTS_MAX) == 3
    assert slots((4000, 10, 0), Request(0), SLOTS_MAX) == SLOTS_MAX
    assert slots((-1, 10, 0), Request(0, 1), SLOTS_MAX) == 0
    assert slots((4000, 10, 2), Request(0.5, addresses=1), SLOTS_MAX) == 2


def test_slots_of_many_nodes_are_those_of_each() -> None:
    free = np.array([[4000, -1, 900], [10, 10, 10], [0, 3, 1]])
    for asked in (Request(0.5, 3), Request(0, 1), Request(0), Request(0.9), Request(0.1, addresses=1)):
        each = [slots(column, asked, 5) for column in free.T.tolist()]
        assert slots_each(free, fixed(asked), 5).tolist() == each


def test_devices_have_a_row_for_each_kind_that_is_asked_for() -> None:
    asked = [Request(cores=0.5, gpus=2), Request(gpus=1, gpu_type="a100"), Request()]
    rows = Rows(asked)
    assert [rows.ask(each)[FIXED:] for each in asked] == [(2, 0), (0, 1), (0, 0)]
    assert rows.of_grant(Grant(0.5, 0, (1,)), (H100, A100)) == (500, 0, 0, 1, 1)


def test_a_request_for_another_kind_is_counted_with_all_devices() -> None:
    rows = Rows([Request(gpus=1, gpu_type="a100")], others=True)
    assert rows.ask(Request(gpus=3, gpu_type="h100"))[FIXED:] == (3, 0)


def test_a_quota_leaves_less_than_nothing_where_too_much_is_asked() -> None:
    assert headroom((4, 2000, None, 0), (1, 1500, 0, 9), (2, 1000, 5, 0)) == [1, -500, inf, inf]


def test_quotas_count_parts_of_cores() -> None:
    queues = Queues()
    queues.quotas["lab"] = Quota(cores=1.5)
    assert queues.room(("lab", ""), Request(cores=0.4)) == 3
    for _ in range(3):
        queues.take(("lab", ""), Grant(0.4, 0))
    assert queues.room(("lab", ""), Request(cores=0.4)) == 0
    assert queues.usage["lab"] == [3, 1200, 0, 0]
    no = queues.lacks(("lab", ""), [(Request(cores=0.4), 1)])
    assert no is not None and no.numbers == {"wanted": 0.4, "used": 1.2, "limit": 1.5}
    assert queues.lacks(("lab", ""), [(Request(cores=0.3), 1)]) is None


def test_a_queue_over_its_quota_of_cores_holds_up_nobody_who_asks_for_none() -> None:
    queues = Queues()
    queues.quotas["lab"] = Quota(cores=1)
    queues.take(("lab", ""), Grant(2, 0))
    assert queues.lacks(("lab", ""), [(Request(cores=0), 1)]) is None
    assert queues.room(("lab", ""), Request(cores=0)) is None
