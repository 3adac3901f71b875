"""Which CPUs lanes have: own ones for whole cores, the rest for the others."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from phalanx.core.model.resources import Capacity, Grant, NumaNode
from phalanx.core.runner.cpus import CpuShare, CpuTable

GIB = 1 << 30
TWO_NUMA = Capacity(8, GIB, (NumaNode(0, 4, (0, 1, 2, 3)), NumaNode(1, 4, (4, 5, 6, 7))))


def a_table(cores: int = 4) -> CpuTable:
    return CpuTable(Capacity(cores, GIB), range(cores))


def test_whole_cores_have_cpus_of_their_own_and_parts_share_the_rest():
    table = a_table()
    assert table.take(1, Grant(2, 0)) == CpuShare((0, 1), True)
    assert table.take(2, Grant(1, 0)) == CpuShare((2,), True)
    assert table.take(3, Grant(0.5, 0)) == CpuShare((3,), False)
    assert table.take(4, Grant(0, 0)) == CpuShare((3,), False)


def test_a_lane_keeps_its_cpus_and_others_get_them_when_it_has_ended():
    table = a_table(2)
    first = table.take(1, Grant(1, 0))
    assert table.take(1, Grant(1, 0)) == first
    assert table.take(2, Grant(1, 0)).cpus == (1,)
    assert table.give_back(1)
    assert not table.give_back(1)
    assert table.take(3, Grant(1, 0)).cpus == (0,)


def test_those_that_share_follow_what_is_shared():
    table = a_table()
    table.take(1, Grant(0.5, 0))
    table.take(2, Grant(3, 0))
    assert table.refreshed() == [1]
    assert table.lanes[1].cpus == (3,)
    assert table.refreshed() == []
    table.give_back(2)
    assert table.refreshed() == [1]
    assert table.shared() == (0, 1, 2, 3)


def test_without_any_left_the_others_run_on_all():
    table = a_table(2)
    table.take(1, Grant(2, 0))
    assert table.take(2, Grant(0, 0)).cpus == (0, 1)


def test_a_numa_target_has_the_cpus_of_its_numa_node():
    table = CpuTable(TWO_NUMA, range(8))
    assert table.take(1, Grant(2, 0, numa=1, numa_cores=((1, 2),))) == CpuShare((4, 5), True, 1)
    assert table.take(2, Grant(0.5, 0, numa=1, numa_cores=((1, 0.5),))) == CpuShare((6, 7), False, 1)


def test_cores_are_taken_on_the_numa_nodes_that_the_grant_names():
    table = CpuTable(TWO_NUMA, range(8))
    assert table.take(1, Grant(5, 0, numa_cores=((1, 4), (0, 1)))).cpus == (0, 4, 5, 6, 7)


def test_parts_of_cores_on_two_numa_nodes_make_whole_cpus_together():
    table = CpuTable(TWO_NUMA, range(8))
    assert len(table.take(1, Grant(2, 0, numa_cores=((0, 0.5), (1, 1.5)))).cpus) == 2


def test_simulated_hardware_gives_no_cpus_but_those_of_a_numa_node():
    table = CpuTable(Capacity(64, GIB, (NumaNode(0, 32, (0,)), NumaNode(1, 32, (1,)))), range(2))
    assert not table.gives_own
    assert table.take(1, Grant(1, 0)) == CpuShare()
    assert table.take(2, Grant(1, 0, numa=1)).cpus == (1,)


def test_numa_nodes_that_share_cpus_give_none_away():
    capacity = Capacity(2, GIB, (NumaNode(0, 1, (0,)), NumaNode(1, 1, (0,))))
    assert not CpuTable(capacity, range(2)).gives_own


def test_an_adopted_lane_has_its_cpus_still():
    table = a_table(2)
    table.adopt(7, CpuShare((0,), True))
    assert table.take(8, Grant(1, 0)).cpus == (1,)
    table.adopt(9, CpuShare((0,), True))  # of a forged memo: it is another's own
    assert not table.lanes[9].is_own
    assert table.give_back(7)


CORES = st.sampled_from([0, 0.25, 0.5, 1, 2, 3, 8])


@given(st.lists(st.tuples(st.integers(0, 9), CORES, st.booleans()), max_size=60))
def test_no_cpu_is_ever_the_own_one_of_two_lanes(steps: list[tuple[int, float, bool]]):
    table = a_table(8)
    for lane, cores, ends in steps:
        if ends:
            table.give_back(lane)
        else:
            table.take(lane, Grant(cores, 0))
        table.refreshed()
        own = [cpu for share in table.lanes.values() if share.is_own for cpu in share.cpus]
        assert len(set(own)) == len(own)
        for share in table.lanes.values():
            if not share.is_own:
                assert not set(share.cpus) & set(own) or len(own) == 8
