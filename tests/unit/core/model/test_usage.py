"""Usage as numbers: sums over attempts, shares, and what a runner cannot mean."""

from __future__ import annotations

import math

import pytest
from msgspec import Struct, msgpack, structs

from phalanx.core.model.orders import Exit, Why
from phalanx.core.model.usage import AttemptUsage, UsageTotals, run_seconds, share, wrong_usage

GIB = 1 << 30


class FormerExit(Struct, array_like=True):
    """The end of an attempt as the version before knew it."""

    why: Why
    code: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    message: str = ""
    stderr_tail: str = ""
    of_node: bool = False
    result: str = ""
    result_bytes: int = 0
    result_sha256: str = ""


def test_sums_of_two_attempts_give_the_efficiency_of_both():
    totals = UsageTotals()
    totals.hold(run_s=100.0, cores=4.0, devices=2, cost_rate=0.01)
    totals.use(AttemptUsage(cpu_s=200.0, memory_peak_bytes=GIB), 100.0, 4.0, 2 * GIB)
    totals.hold(run_s=300.0, cores=1.0, devices=0, cost_rate=0.001)  # nobody measured this one
    assert (totals.attempts, totals.core_s, totals.device_s) == (2, 700.0, 200.0)
    assert share(totals.cpu_s, totals.measured_core_s) == 0.5
    assert share(totals.peak_byte_s, totals.asked_byte_s) == 0.5
    assert totals.cost == pytest.approx(1.3)


def test_totals_add_up_and_keep_the_largest_peak():
    one, other = UsageTotals(), UsageTotals()
    one.use(AttemptUsage(1.0, 5, 10, 20, 4.0, 2.0, 1.0, 7), 1.0, 1.0, 0)
    other.use(AttemptUsage(2.0, 3, 1, 2, 6.0, 6.0, 0.0, 7), 1.0, 1.0, 0)
    one.add(other)
    assert (one.cpu_s, one.read_bytes, one.written_bytes, one.memory_peak_bytes) == (3.0, 11, 22, 5)
    assert share(one.device_busy_s, one.sampled_device_s) == 0.8
    assert one.device_idle_s == 1.0


def test_every_number_of_the_totals_is_added():
    one = UsageTotals(*range(1, len(UsageTotals.__struct_fields__) + 1))
    one.add(UsageTotals(*range(1, len(UsageTotals.__struct_fields__) + 1)))
    doubled = [2 * number for number in range(1, len(UsageTotals.__struct_fields__) + 1)]
    peak = UsageTotals.__struct_fields__.index("memory_peak_bytes")
    doubled[peak] //= 2
    assert list(structs.astuple(one)) == doubled


def test_there_is_no_share_of_nothing():
    assert share(5.0, 0.0) is None
    assert run_seconds(None, 5.0) == 0.0
    assert run_seconds(7.0, 5.0) == 0.0  # two clocks disagree


@pytest.mark.parametrize("field", AttemptUsage.__struct_fields__)
@pytest.mark.parametrize("value", [-1, math.nan, math.inf, 1e20])
def test_what_cannot_be_true_names_the_field(field: str, value: float):
    assert f"exit.usage.{field}" in wrong_usage(structs.replace(AttemptUsage(), **{field: value}))


def test_an_end_of_an_older_runner_has_no_usage_and_a_newer_one_is_understood_by_an_older_coordinator():
    assert msgpack.decode(msgpack.encode([0, 0, 1.0, 2.0]), type=Exit).usage is None
    sent = msgpack.encode(Exit(Why.NONE, 0, 1.0, 2.0, usage=AttemptUsage(1.5, 100)))
    assert msgpack.decode(sent, type=Exit).usage == AttemptUsage(1.5, 100)
    assert msgpack.decode(sent, type=FormerExit) == FormerExit(Why.NONE, 0, 1.0, 2.0)
