"""Preemption on the chosen nodes: which victims can come back, and which way is the better one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from phalanx.core.model.ledger import Ledger
from phalanx.core.model.queues import Queues, Quota
from phalanx.core.model.reason import Reason
from phalanx.core.model.resources import Capacity, Device, Grant, NumaNode, Request, parse_target
from phalanx.core.model.tenants import NEVER, Tenant
from phalanx.core.model.waiting import Ask
from phalanx.core.placement.draft import Draft
from phalanx.core.placement.preempt.eviction_plan import EvictionPlan, Key, Preemption
from phalanx.core.placement.preempt.node_fit import NodeFit, QuotaLeft, Trim, in_turn
from phalanx.core.placement.preempt.victims import EvictionUnit, Loss
from tests.support.full_cluster import NOW, FullCluster, a_gang, some

H100 = Request(cores=0, gpus=1)


def a_tenant(job: str, lane: int, row: int, *devices: int, cores: int = 0, priority: int = 0) -> Tenant:
    grant = Grant(cores, 0, devices)
    return Tenant((f"n{row}", lane), job, "default", 0, row, grant, priority, 0.0, NEVER, NOW - 10)


def a_ledger(kinds: str = "h100 h100 h100 h100", cores: int = 8, numa: int = 0) -> Ledger:
    devices = tuple(Device(index, kind) for index, kind in enumerate(kinds.split()))
    parts = tuple(NumaNode(at, cores // numa) for at in range(numa))
    return Ledger("n1", Capacity(cores, 100, parts, devices))


class TestStand:
    def test_one_more_comes_back_as_long_as_members_fit(self):
        ledger = a_ledger()
        out = [a_tenant("low", lane, 1, lane) for lane in range(4)]
        for tenant in out:
            ledger.take(tenant.grant)
        stand = NodeFit(ledger, [(H100, 2)], out)
        assert stand.admits(out[:2]) and not stand.admits(out[:3])
        stand.readmit(out[:2])
        assert stand.holds() and not stand.admits(out[2:3])

    def test_members_of_two_kinds_are_counted_together(self):
        ledger = a_ledger("a100 h100")
        asked = [(Request(cores=0, gpus=1), 1), (Request(cores=0, gpus=1, gpu_type="a100"), 1)]
        back = a_tenant("low", 1, 1, 1)
        ledger.take(back.grant)
        assert NodeFit(ledger, asked, [back]).holds()
        assert not NodeFit(ledger, asked, [back]).admits([back])

    def test_cores_and_memory_are_counted(self):
        ledger = a_ledger("", cores=4)
        back = a_tenant("low", 1, 1, cores=3)
        ledger.take(back.grant)
        stand = NodeFit(ledger, [(Request(cores=2), 1)], [back])
        assert stand.holds() and not stand.admits([back])

    def test_a_device_that_stays_promised_is_not_free(self):
        ledger = a_ledger("h100")
        lane = a_tenant("low", 1, 1, 0)
        ledger.take(lane.grant)
        ledger.promise(Grant(0, 0, (0,)))
        assert not NodeFit(ledger, [(H100, 1)], [lane]).holds()

    def test_cores_of_a_named_numa_node_are_counted(self):
        ledger = a_ledger("", cores=8, numa=2)
        pinned = Request(cores=4, target=parse_target("n1:1"))
        assert NodeFit(ledger, [(pinned, 1)], ()).holds() and not NodeFit(ledger, [(pinned, 2)], ()).holds()

    @given(st.lists(st.sampled_from(["a100", "h100", "b200"]), min_size=1, max_size=6), st.data())
    def test_whatever_holds_can_be_granted_one_after_the_other(self, kinds: list[str], data: st.DataObject):
        asked = [
            (Request(cores=0, gpus=data.draw(st.integers(1, 2)), gpu_type=kind), data.draw(st.integers(0, 2)))
            for kind in data.draw(st.permutations([None, *sorted(set(kinds))]))
        ]
        asked = [each for each in asked if each[1]]
        ledger = a_ledger(" ".join(kinds))
        if NodeFit(ledger, asked, ()).holds():
            for _, request in in_turn(ledger, asked):
                grant = ledger.fit(request)
                assert not isinstance(grant, Reason), grant
                ledger.take(grant)


class TestTrim:
    def a_trim(self, members: int, out: list[Tenant], gpus: int = 4, rows: int = 2) -> Trim:
        stands = {}
        for row in range(rows):
            ledger = a_ledger(" ".join(["h100"] * gpus))
            mine = [tenant for tenant in out if tenant.node_row == row]
            for tenant in mine:
                ledger.take(tenant.grant)
            stands[row] = NodeFit(ledger, [(H100, members)], mine)
        return Trim(stands, QuotaLeft(Queues(), ("default", ""), (), ()))

    def test_the_most_urgent_comes_back_first(self):
        out = [a_tenant("low", 1, 0, 0), a_tenant("high", 2, 0, 1, priority=5)]
        bundles = [EvictionUnit(Loss.WORK, each.job, each.priority, 1.0, (each,)) for each in out]
        assert [each.job for each in self.a_trim(3, out).keep_out(bundles)] == ["low"]

    def test_a_gang_comes_back_whole_or_not_at_all(self):
        out = [a_tenant("old", 1, 0, 0), a_tenant("old", 2, 1, 0), a_tenant("low", 3, 1, 1)]
        bundles = [
            EvictionUnit(Loss.WORK, "old", 0, 9.0, tuple(out[:2])),
            EvictionUnit(Loss.WORK, "low", 0, 1.0, (out[2],)),
        ]
        kept = self.a_trim(4, out).keep_out(bundles)
        assert sorted(each.job for each in kept) == ["low", "old"]

    def test_all_of_a_gang_but_its_surplus_comes_back(self):
        out = [a_tenant("old", 1, 0, 0), a_tenant("old", 2, 1, 0), a_tenant("old", 3, 1, 1)]
        bundle = EvictionUnit(Loss.WORK, "old", 0, 9.0, tuple(out), ((0, 1),))
        trimmed = Trim(
            {0: self.a_trim(4, out)._fits[0]}, QuotaLeft(Queues(), ("default", ""), (), ())
        ).keep_out([bundle])  # fmt: skip
        assert [(each.loss, each.tenants[0].key) for each in trimmed] == [(Loss.SURPLUS, ("n0", 1))]

    def test_quota_keeps_away_who_would_fit(self):
        queues = Queues()
        queues.quotas["default"] = Quota(tasks=1)
        out = a_tenant("low", 1, 0, 0)
        queues.take(("default", ""), out.grant)
        quota = QuotaLeft(queues, ("default", ""), [(H100, 1)], [out])
        assert quota.holds() and not quota.admits([out])

    @given(st.data())
    def test_nobody_who_is_kept_away_could_come_back(self, data: st.DataObject):
        """The law: the members fit, and with any eviction unit back they would not."""
        bundles, used = [], [0, 0]
        for number in range(data.draw(st.integers(1, 6))):
            rows = data.draw(st.lists(st.integers(0, 1), min_size=1, max_size=3))
            tenants: list[Tenant] = []
            for row in rows:
                if used[row] < 4:
                    tenants.append(a_tenant(f"job-{number}", 10 * number + len(tenants), row, used[row]))
                    used[row] += 1
            if tenants:
                job, priority = tenants[0].job, data.draw(st.integers(0, 3))
                bundles.append(EvictionUnit(Loss.WORK, job, priority, 1.0, tuple(tenants)))
        out = [tenant for bundle in bundles for tenant in bundle.tenants]
        members = data.draw(st.integers(0, 4))
        kept = self.a_trim(members, out).keep_out(bundles)
        away = [tenant for bundle in kept for tenant in bundle.tenants]
        back = [tenant for tenant in out if tenant not in away]
        assert self._fits(members, back)
        assert not any(self._fits(members, [*back, *bundle.tenants]) for bundle in kept)

    def _fits(self, members: int, there: list[Tenant]) -> bool:
        return all(members + sum(tenant.node_row == row for tenant in there) <= 4 for row in range(2))


class TestClearing:
    """Which of two ways to make room is the better one."""

    def key(self, *bundles: EvictionUnit, rows: tuple[int, ...] = (0,), **gather: object) -> Key:
        cluster = FullCluster("s/b/r1", "s/b/r1", "s/b/r2")
        ask = Ask(a_gang(some(len(rows)), **gather))  # type: ignore[arg-type]
        return EvictionPlan(
            Preemption(Draft(cluster.snapshot()), ask), [[(row, 1) for row in rows]], list(bundles)
        ).key

    def a_bundle(
        self, job: str, lost: float = 1.0, loss: Loss = Loss.WORK, priority: int = 0
    ) -> EvictionUnit:
        return EvictionUnit(loss, job, priority, lost, (a_tenant(job, 1, 0, 0),))

    def test_fewer_broken_jobs(self):
        one, two = self.a_bundle("one", lost=99.0, priority=5), self.a_bundle("two")
        assert self.key(one) < self.key(two, self.a_bundle("three"))

    def test_a_smaller_gang_rather_than_a_broken_job(self):
        assert self.key(self.a_bundle("one", 99.0, Loss.SURPLUS)) < self.key(self.a_bundle("two"))

    def test_one_smaller_gang_rather_than_two(self):
        one, two = self.a_bundle("one", 99.0, Loss.SURPLUS, 5), self.a_bundle("two", 1.0, Loss.SURPLUS)
        assert self.key(one) < self.key(two, self.a_bundle("three", 1.0, Loss.SURPLUS))

    def test_lower_priority_rather_than_less_lost_work(self):
        assert self.key(self.a_bundle("one", 99.0)) < self.key(self.a_bundle("two", 1.0, priority=1))

    def test_closer_together_where_the_job_asks_for_it(self):
        near, far = self.a_bundle("one", 99.0), self.a_bundle("two", 1.0)
        assert self.key(near, rows=(0, 1), prefer="rack") < self.key(far, rows=(0, 2), prefer="rack")

    def test_less_lost_work_where_the_job_does_not_say(self):
        near, far = self.a_bundle("one", 99.0), self.a_bundle("two", 1.0)
        assert self.key(far, rows=(0, 2)) < self.key(near, rows=(0, 1))

    def test_closer_together_where_about_as_much_is_lost(self):
        near, far = self.a_bundle("one", 99.0), self.a_bundle("two", 90.0)
        assert self.key(near, rows=(0, 1)) < self.key(far, rows=(0, 2))
