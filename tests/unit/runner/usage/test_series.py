"""A curve in bounded memory: fine at the end, coarser before, nothing lost in between."""

from __future__ import annotations

import pytest

from phalanx.link.usage import UsagePoint
from phalanx.runner.usage.series import UsageSeries


def a_point(number: int, cores: float = 1.0, memory: float = 10.0, use: float = -1.0) -> UsagePoint:
    return UsagePoint(1000.0 + 5 * number, 5.0, cores, memory, 100.0, 200.0, 3, use, 7.0)


def test_a_short_curve_is_told_as_it_was():
    series = UsageSeries(1000.0)
    points = [a_point(number, cores=number) for number in range(1, 4)]
    for point in points:
        series.add(point)
    assert series.points(240) == tuple(points)


@pytest.mark.parametrize("count", [240, 241, 1000, 10_000])
def test_a_long_one_stays_within_its_limit_and_covers_all_of_the_time(count: int):
    series = UsageSeries(1000.0, most=240)
    for number in range(1, count + 1):
        series.add(a_point(number, cores=number % 4, memory=number))
    points = series.points(240)
    assert len(series) <= 240
    assert sum(point.span_s for point in points) == pytest.approx(5.0 * count, rel=1e-4)
    cpu_s = sum(point.cores * point.span_s for point in points)
    assert cpu_s == pytest.approx(5.0 * sum(number % 4 for number in range(1, count + 1)), rel=1e-3)
    assert max(point.memory_bytes for point in points) == count
    assert points[-1].span_s == 5.0  # the newest is as fine as it was sampled
    assert points[0].span_s >= points[-1].span_s


def test_fewer_points_are_given_if_fewer_are_asked_for():
    series = UsageSeries(1000.0)
    for number in range(1, 101):
        series.add(a_point(number, cores=2.0))
    points = series.points(10)
    assert 5 <= len(points) <= 10
    assert all(point.cores == pytest.approx(2.0) for point in points)
    assert series.points(0) == ()


def test_a_time_without_samples_of_devices_does_not_count_as_idle():
    series = UsageSeries(1000.0)
    series.add(a_point(1, use=-1.0))
    series.add(a_point(2, use=0.8))
    assert series.points(1)[0].device_use == pytest.approx(0.8)
